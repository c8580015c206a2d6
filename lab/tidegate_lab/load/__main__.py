"""`python3 -m tidegate_lab.load`: the load alone, where the rest of the lab is not installed."""

import argparse
import sys

from tidegate_lab.load.command import add_flags, load

parser = argparse.ArgumentParser("tidegate load")
add_flags(parser)
sys.exit(load(parser.parse_args()))
