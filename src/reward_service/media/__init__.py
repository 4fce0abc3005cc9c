"""Pictures and videos as clients send them: checked, bounded, and turned into RGB pixels or safe paths.

Bad input raises `reward_service.errors.BadMedia` and nothing else; its message is fit for the client.
What is accepted, how it is converted and what is refused stands in ``docs/media.md``.
"""

from __future__ import annotations

from .base64_text import decode_base64
from .image import PendingImage, open_image
from .video import check_video, resolve_video_path

__all__ = ["PendingImage", "check_video", "decode_base64", "open_image", "resolve_video_path"]
