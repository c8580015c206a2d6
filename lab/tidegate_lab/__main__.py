"""`python3 -m tidegate_lab`."""

import sys

from tidegate_lab.cli import main

sys.exit(main())
