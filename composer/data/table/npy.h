#pragma once
#include <filesystem>

#include <ATen/core/Tensor.h>

#include "composer/core/export.h"
#include "composer/core/tensors.h"

namespace composer::data {

struct NpyOptions {
  // Reads bytes when they are used, so that the file may be larger than the memory. Writing into the tensor does not
  // change the file. If another program shortens the file meanwhile, the system ends the process.
  bool memory_map = false;
};

// Reads a file of numpy.save. Arrays in Fortran's order become tensors of other strides, and big-endian ones are
// converted. Throws DataError with the file for one that is damaged, and for elements that a tensor cannot have: Python
// objects, texts, dates and records.
COMPOSER_EXPORT at::Tensor read_npy(const std::filesystem::path& file, NpyOptions options = {});

// Reads the arrays of numpy.savez or numpy.savez_compressed by their names, in alphabetical order. Throws DataError.
COMPOSER_EXPORT Batch read_npz(const std::filesystem::path& file);

// Write files that numpy.load reads, atomically. The tensors may be on any device. Create missing folders. Throw
// ConfigError for a dtype that NumPy does not have, such as bfloat16; Error on an I/O error.
COMPOSER_EXPORT void write_npy(const at::Tensor& tensor, const std::filesystem::path& file);
COMPOSER_EXPORT void write_npz(const Batch& tensors, const std::filesystem::path& file);

}  // namespace composer::data
