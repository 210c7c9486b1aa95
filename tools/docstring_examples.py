"""Examples in docstrings are shown as code; an extension of griffe, which reads the sources.

Our docstrings say `Example:`; griffe knows `Examples:`, and takes anything else for a remark.
"""

from __future__ import annotations

import re
from typing import Any

import griffe


class DocstringExamples(griffe.Extension):
    """Gives the section the name that griffe knows."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = re.sub(
                r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE
            )
