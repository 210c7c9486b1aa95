"""The version of the distribution `tornasole`; hatchling reads it from here."""

__version__ = "2.0.0.dev0"
