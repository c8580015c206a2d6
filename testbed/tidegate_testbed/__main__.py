"""`python3 -m tidegate_testbed VERB`."""

from tidegate_testbed.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
