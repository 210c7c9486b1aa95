"""Encodings shared by both formats: keys, records, events, element types, checksums."""
