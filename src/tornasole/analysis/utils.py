"""`smdebug.analysis.utils` under the older name."""

from smdebug.analysis.utils import no_refresh, parse_bool, parse_list_from_str, refresh

__all__ = ["no_refresh", "parse_bool", "parse_list_from_str", "refresh"]
