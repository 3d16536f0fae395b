import json
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "src"))
from plugin import plugin


class Test(unittest.TestCase):
    def test_counts_lines_and_words(self) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("one\ntwo three\n")
            file.flush()
            result = plugin.attempt({"path": file.name})
        self.assertEqual(json.loads(result.output), {"lines": 2, "words": 3})

    def test_refuses_what_is_too_large(self) -> None:
        result = plugin.attempt({"path": __file__}, {"max_bytes": 1})
        self.assertEqual((result.code, result.final), ("too_large", True))
