#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "composer/formats/byte_source.h"
#include "composer/formats/pickle_reader.h"
#include "composer/formats/zip_reader.h"

namespace composer::formats {

// The tensors of a torch.save file and the positions of their bytes. Does not use libtorch.
struct PtIndex {
  PtIndex(std::unique_ptr<ByteSource> source, PickleOptions options);

  std::unique_ptr<ByteSource> source;
  ZipReader zip;
  Pickle pickle;
  std::vector<std::pair<std::string, std::uint32_t>> tensors;  // name, index in pickle.tensors; in the file's order
  std::vector<const ZipEntry*> storages;                       // entries of pickle.storages; large enough for them

 private:
  void read(const std::string& bytes, PickleOptions options);
  void check_readable_with_unknown(const std::string& bytes);
};

}  // namespace composer::formats
