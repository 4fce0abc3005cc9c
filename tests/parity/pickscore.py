"""pickscore as its model card computes it: features, normalised, times exp(logit_scale); divided by 26."""

import json
import sys
from importlib.metadata import version

import torch
from transformers import AutoModel, AutoProcessor

from reward_service.testing.pictures import cases

folder = sys.argv[1]
model = AutoModel.from_pretrained(folder).eval()
processor = AutoProcessor.from_pretrained(folder, use_fast=False)
values = {}
for case in cases():
    if min(case.image.size) == 1:
        continue  # taken for a picture of one channel by this release
    options = {"padding": True, "truncation": True, "max_length": 77, "return_tensors": "pt"}
    with torch.inference_mode():
        picture = model.get_image_features(**processor(images=case.image, **options))
        text = model.get_text_features(**processor(text=case.prompt, **options))
        picture = picture / torch.norm(picture, dim=-1, keepdim=True)
        text = text / torch.norm(text, dim=-1, keepdim=True)
        values[case.name] = {"pickscore": (model.logit_scale.exp() * (text @ picture.T)).item() / 26}
packages = {name: version(name) for name in ("transformers", "torch", "pillow")}
print(json.dumps({"packages": packages, "values": values}))
