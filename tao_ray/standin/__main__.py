"""``python -m tao_ray.standin train -e ./spec.yaml`` for a Python without console scripts."""

from __future__ import annotations

from tao_ray.standin.main import main

raise SystemExit(main())
