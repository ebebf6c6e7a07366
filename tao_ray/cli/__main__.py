"""``python -m tao_ray.cli``: the same as ``tao-ray``."""

import sys

from tao_ray.cli import main

if __name__ == "__main__":
    sys.exit(main())
