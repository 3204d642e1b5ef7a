#!/usr/bin/env python3
"""What torchvision needs for the images of bench_images, by its decoder of tensors and by Pillow. Needs torch and torchvision.

    COMPOSER_BENCH_IMAGES=/tmp/images build/release/bin/bench_images && python3 benchmarks/images.py /tmp/images"""
import statistics
import sys
import time

import torch
from torchvision import datasets
from torchvision.io import decode_image
from torchvision.transforms import v2

torch.set_num_threads(1)
FLOATS = [v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])]
AUGMENT = [v2.RandomResizedCrop(224), v2.RandomHorizontalFlip()]
PREPARE = [v2.Resize(256), v2.CenterCrop(224)]


def measure(name, folder, transforms, rounds, calls):
    """Microseconds of processor time for a sample: the median of all rounds."""
    kinds = {"tensors": datasets.ImageFolder(folder, v2.Compose(transforms + FLOATS), loader=lambda path: decode_image(path, mode="RGB")),
             "Pillow": datasets.ImageFolder(folder, v2.Compose([*transforms, v2.PILToTensor(), *FLOATS]))}
    for kind, samples in kinds.items():
        times = []
        for _ in range(rounds + 1):
            began = time.thread_time()
            for index in range(calls):
                samples[index % len(samples)]
            times.append((time.thread_time() - began) / calls * 1e6)
        print(f"{name}, {kind}: {statistics.median(times[1:]):.0f} us")


measure("JPEG of 500 x 375, augmented", f"{sys.argv[1]}/small", AUGMENT, 15, 40)
measure("JPEG of 500 x 375, prepared", f"{sys.argv[1]}/small", PREPARE, 15, 40)
measure("JPEG of 4000 x 3000, prepared", f"{sys.argv[1]}/large", PREPARE, 9, 2)
