"""`python -m smdebug` is the command `smdebug`."""

from smdebug.cli.main import main

if __name__ == "__main__":
    main()
