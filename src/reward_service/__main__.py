"""``python -m reward_service --config FILE`` equals ``reward-service serve --config FILE``."""

from reward_service.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
