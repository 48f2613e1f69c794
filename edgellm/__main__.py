"""``python -m edgellm``: the same as the ``edgellm`` command."""

from edgellm.cli import main

if __name__ == "__main__":
    main(prog_name="edgellm")
