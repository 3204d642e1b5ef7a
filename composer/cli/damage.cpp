#include "composer/cli/damage.h"

#include <algorithm>
#include <optional>

#include "composer/cli/contents.h"
#include "composer/cli/text.h"
#include "composer/core/error.h"
#include "composer/formats/byte_source.h"
#include "composer/formats/safetensors.h"
#include "composer/util/checksum.h"

namespace composer::cli {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kPiece = 1 << 20;

std::string checksum_of(const formats::ByteSource& file) {
  util::Checksum sum;
  std::string piece(kPiece, '\0');
  for (std::uint64_t at = 0; at < file.size(); at += kPiece) {
    const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(kPiece, file.size() - at));
    file.read(at, piece.data(), size);
    sum.update(piece.data(), size);
  }
  return sum.text();
}

// Against the manifest, which has the checksum of the header, and with it of the tensors' checksums. Those of version 1
// have that of the whole file.
std::optional<std::string> damage_of_file(const fs::path& path, const saving::Manifest::File& expected, int version) {
  try {
    auto file = formats::open_file(path);
    if (file->size() != expected.size)
      return join(path.string(), ": has ", file->size(), " bytes; the manifest lists ", expected.size);
    if (version == 1 && checksum_of(*file) != expected.checksum)
      return join(path.string(), ": is damaged: its bytes do not match the checksum in the manifest");
    if (version > 1) {
      const formats::SafetensorsFile header(std::move(file), {.require_checksums = true});
      if (header.checksum() != expected.checksum)
        return join(path.string(), ": is not the file listed in the manifest: its checksum is ", header.checksum(),
                    " instead of ", expected.checksum);
    }
  } catch (const std::exception& error) {
    return one_line(error);
  }
  return std::nullopt;
}

// Every tensor is read, so that each that is damaged is named.
void add_damage_of_contents(const fs::path& path, std::vector<std::string>& wrong) {
  try {
    for (const Entry& tensor : open_contents(path).tensors) try {
        tensor.read();
      } catch (const std::exception& error) {
        wrong.push_back(one_line(error));
      }
  } catch (const std::exception& error) {
    wrong.push_back(one_line(error));
  }
}

}  // namespace

std::vector<std::string> damage_of(const fs::path& path) {
  std::vector<std::string> wrong;
  try {
    if (kind_of(path) == Kind::CHECKPOINT) {
      const auto [folder, manifest] = saving::open_checkpoint(path);
      for (const saving::Manifest::File& file : manifest.files)
        if (auto damage = damage_of_file(folder / file.name, file, manifest.version))
          wrong.push_back(std::move(*damage));
    }
    add_damage_of_contents(path, wrong);
  } catch (const std::exception& error) {
    wrong.push_back(one_line(error));
  }
  // A file that is missing is said once.
  std::ranges::sort(wrong);
  wrong.erase(std::ranges::unique(wrong).begin(), wrong.end());
  return wrong;
}

}  // namespace composer::cli
