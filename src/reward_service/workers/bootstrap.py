"""Start of a scorer process, in any interpreter from Python 3.10 and any environment.

Run as a file. It makes this very copy of ``reward_service`` importable without putting the folder around
it (the gateway's site-packages, perhaps) on ``sys.path``, then hands over to `process`.
"""

import importlib.util
import os
import sys


def main() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]
    package = os.path.dirname(here)
    spec = importlib.util.spec_from_file_location(
        "reward_service", os.path.join(package, "__init__.py"), submodule_search_locations=[package]
    )
    if spec is None or spec.loader is None:
        raise SystemExit(f"cannot load reward_service from {package}")
    module = importlib.util.module_from_spec(spec)
    sys.modules["reward_service"] = module
    spec.loader.exec_module(module)

    from reward_service.workers import process

    raise SystemExit(process.main())


if __name__ == "__main__":
    main()
