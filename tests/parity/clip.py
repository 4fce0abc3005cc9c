"""clip by transformers' own model and processor, one pair at a time, as the model card shows."""

import json
import sys
from importlib.metadata import version

import torch
from transformers import CLIPModel, CLIPProcessor

from reward_service.testing.pictures import cases

folder = sys.argv[1]
model = CLIPModel.from_pretrained(folder).eval()
processor = CLIPProcessor.from_pretrained(folder, use_fast=False)
values = {}
for case in cases():
    if min(case.image.size) == 1:
        continue  # taken for a picture of one channel by this release
    options = {"padding": "max_length", "truncation": True, "max_length": 77, "return_tensors": "pt"}
    inputs = processor(text=[case.prompt], images=[case.image], **options)
    with torch.inference_mode():
        values[case.name] = {"clip": model(**inputs).logits_per_image[0, 0].item() / 30}
packages = {name: version(name) for name in ("transformers", "torch", "pillow")}
print(json.dumps({"packages": packages, "values": values}))
