"""No script here has the name of a module of Python: each script finds its directory before the library."""

import pathlib
import sys
import unittest


class Names(unittest.TestCase):
    def test_scripts_hide_no_module_of_python(self):
        names = {path.stem for path in pathlib.Path(__file__).parent.glob("*.py")}
        self.assertEqual(names & sys.stdlib_module_names, set())


if __name__ == "__main__":
    unittest.main()
