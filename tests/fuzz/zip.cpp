// A zip file: entries lie within it and apart, and are no larger than promised.
#include "composer/formats/zip_reader.h"
#include "tests/fuzz/fuzz.h"

using namespace composer;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = fuzz::file_of(data, size);
  try {
    const formats::ZipReader zip(*file);
    for (const formats::ZipEntry& entry : zip.entries()) {
      fuzz::require(entry.data <= size && entry.stored <= size - entry.data && entry.size <= 64 * size);
      fuzz::require(zip.find(entry.name) == &entry);
      try {
        fuzz::require(zip.read(entry).size() == entry.size);
      } catch (const CheckpointError&) {
      }
    }
  } catch (const CheckpointError&) {
  }
  return 0;
}
