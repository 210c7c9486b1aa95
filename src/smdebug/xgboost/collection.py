"""The collections of XGBoost are those of the core, under the path of smdebug 1.0."""

from smdebug.config.collection import Collection

__all__ = ["Collection"]
