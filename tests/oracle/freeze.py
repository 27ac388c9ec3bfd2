"""Write the words of the frozen cases again, after they were changed on purpose.

    python -m tests.oracle.freeze

Questions and answers stay as they were frozen, by the commit "Freeze what kanab answers" and its code.
"""

from . import adapter
from .frozen import KINDS, read_lines, write_lines

if __name__ == "__main__":
    for kind in KINDS:
        cases = ((case, adapter.run(case["call"], case["given"])) for case in read_lines(kind))
        write_lines(f"{kind}-words", [{"id": case["id"], "words": answer.words()} for case, answer in cases])
