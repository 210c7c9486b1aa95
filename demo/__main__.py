"""Runs the demo."""

import sys

if __name__ == "__main__":
    try:
        # Importing torch takes seconds, in which a person may change her mind.
        from demo.program import main

        main()
    except KeyboardInterrupt:
        sys.exit(130)
