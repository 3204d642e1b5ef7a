#!/usr/bin/env python3
"""Records tests/data/image/images.safetensors: small files that Pillow writes, the pixels that it reads from them, and what
torchvision's transforms make of an image. Needs torch, torchvision, pillow and safetensors of PyPI.

    file/NAME               bytes of a file
    pixels/NAME/MODE        [H, W, C] as Pillow converts them to L, RGB or RGBA
    transform/NAME          what a transform makes of transform/input"""
import io
import pathlib

import numpy
import torch
from PIL import Image, ImageOps, features
from safetensors.torch import save_file
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms.v2 import functional as F

tensors = {}


def smooth(height, width, channels):
    """A picture that JPEG hardly changes, of no symmetry."""
    y, x = numpy.mgrid[0:height, 0:width]
    planes = [127 + 110 * numpy.sin(0.9 * c + 0.21 * x + 0.13 * (c + 1) * y) for c in range(channels)]
    return numpy.stack(planes, -1).round().astype(numpy.uint8)


def keep(name, image, modes=("L", "RGB", "RGBA"), bytes_=None, **options):
    if bytes_ is None:
        file = io.BytesIO()
        image.save(file, **options)
        bytes_ = file.getvalue()
    tensors[f"file/{name}"] = torch.frombuffer(bytearray(bytes_), dtype=torch.uint8)
    read = ImageOps.exif_transpose(Image.open(io.BytesIO(bytes_)))
    for mode in modes:
        pixels = numpy.array(read.convert(mode))
        tensors[f"pixels/{name}/{mode}"] = torch.from_numpy(pixels.reshape(*pixels.shape[:2], -1).copy())


rgb = Image.fromarray(smooth(11, 19, 3))
rgba = Image.fromarray(smooth(11, 19, 4))
grey = Image.fromarray(smooth(11, 19, 1)[:, :, 0])
palette = rgb.quantize(23)
keep("png_rgb", rgb, format="PNG")
keep("png_rgba", rgba, format="PNG")
keep("png_grey", grey, format="PNG")
keep("png_grey_alpha", Image.fromarray(smooth(11, 19, 2), "LA"), format="PNG")
keep("png_one_bit", grey.point(lambda value: value > 127, "1"), format="PNG")
keep("png_palette", palette, format="PNG")
keep("png_palette_4", rgb.quantize(5), format="PNG")
keep("png_palette_transparent", palette, format="PNG", transparency=3)
keep("png_exif", rgb, format="PNG", exif=bytes.fromhex("45786966000049492a00080000000100120103000100000006000000000000000000"))
keep("jpeg_rgb", rgb, format="JPEG", quality=90, subsampling=0)
keep("jpeg_420", rgb, format="JPEG", quality=90, subsampling=2)
keep("jpeg_progressive", rgb, format="JPEG", quality=90, progressive=True)
keep("jpeg_grey", grey, format="JPEG", quality=90)
keep("jpeg_cmyk", Image.fromarray(smooth(11, 19, 4), "CMYK"), modes=("RGB",), format="JPEG", quality=90)
for orientation in range(1, 9):
    exif = Image.Exif()
    exif[0x0112] = orientation
    keep(f"jpeg_exif_{orientation}", rgb, modes=("RGB",), format="JPEG", quality=90, exif=exif)
keep("bmp_rgb", rgb, format="BMP")
keep("bmp_grey", grey, format="BMP")
keep("bmp_palette", palette, format="BMP")
keep("bmp_one_bit", grey.point(lambda value: value > 127, "1"), format="BMP")
keep("bmp_rgba", rgba, format="BMP")
keep("gif_palette", palette, modes=("RGB",), format="GIF", interlace=0)
keep("gif_interlaced", palette, modes=("RGB",), format="GIF", interlace=1)
keep("gif_two_frames", palette, modes=("RGB",), format="GIF", save_all=True, append_images=[grey.convert("RGB").quantize(7)])
keep("gif_transparent", palette, modes=("RGBA",), format="GIF", transparency=3)
keep("ppm", rgb, format="PPM")
keep("pgm", grey, format="PPM")

image = torch.from_numpy(smooth(37, 53, 3)).permute(2, 0, 1).contiguous()
image = (image.int() + torch.arange(37 * 53 * 3).reshape(3, 37, 53) * 7919 % 41).clamp(0, 255).to(torch.uint8)
tensors["transform/input"] = image
near, linear, cubic = InterpolationMode.NEAREST, InterpolationMode.BILINEAR, InterpolationMode.BICUBIC
for name, made in {
    "resize_16": v2.Resize(16)(image),
    "resize_20x64": v2.Resize((20, 64))(image),
    "resize_16_max_20": v2.Resize(16, max_size=20)(image),
    "resize_90": v2.Resize(90)(image),
    "resize_16_bicubic": v2.Resize(16, interpolation=cubic)(image),
    "resize_16_nearest": v2.Resize(16, interpolation=near)(image),
    "resize_16_aliased": v2.Resize(16, antialias=False)(image),
    "resize_16_float": v2.Resize(16)(image.float() / 255),
    "center_crop_24": v2.CenterCrop(24)(image),
    "center_crop_30x60": v2.CenterCrop((30, 60))(image),
    "center_crop_48x48": v2.CenterCrop(48)(image),
    "pad_1_2_3_4": v2.Pad((1, 2, 3, 4), fill=9)(image),
    "pad_edge": v2.Pad((2, 5), padding_mode="edge")(image),
    "pad_reflect": v2.Pad(6, padding_mode="reflect")(image),
    "flip": F.horizontal_flip(image),
    "flip_vertical": F.vertical_flip(image),
    "brightness": F.adjust_brightness(image, 1.3),
    "contrast": F.adjust_contrast(image, 0.6),
    "saturation": F.adjust_saturation(image, 1.7),
    "hue": F.adjust_hue(image, 0.2),
    "hue_float": F.adjust_hue(image.float() / 255, -0.4),
    "contrast_float": F.adjust_contrast(image.float() / 255, 1.4),
    "grayscale": v2.Grayscale()(image),
    "rotate_30": F.rotate(image, 30),
    "rotate_30_bilinear": F.rotate(image, 30, interpolation=linear),
    "affine": F.affine(image, angle=20, translate=[0, 0], scale=1.2, shear=[10, 0], interpolation=linear),
    "normalize": v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])(image.float() / 255),
}.items():
    tensors[f"transform/{name}"] = made.contiguous()

save_file(tensors, pathlib.Path(__file__).parent / "images.safetensors")
print(f"Pillow {Image.__version__}, libjpeg-turbo {features.version('jpg')}, torch {torch.__version__}: {len(tensors)} tensors")
