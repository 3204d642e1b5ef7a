#include "composer/cli/damage.h"

#include <algorithm>
#include <exception>

#include "composer/cli/contents.h"
#include "composer/cli/text.h"
#include "composer/core/error.h"
#include "composer/formats/byte_source.h"
#include "composer/formats/pt_file.h"
#include "composer/formats/safetensors.h"
#include "composer/formats/unsupported.h"
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

void add(Findings& findings, const std::exception& error) {
  const bool unsupported = dynamic_cast<const formats::UnsupportedError*>(&error) != nullptr;
  (unsupported ? findings.unsupported : findings.damage).push_back(one_line(error));
}

// Compares with the manifest, which contains the checksum of the header, and so of the tensors' checksums. Manifests of
// version 1 contain the checksum of the whole file.
void check_file(const fs::path& path, const saving::Manifest::File& expected, int version) {
  auto file = formats::open_file(path);
  if (file->size() != expected.size)
    throw CheckpointError(path.string(), ": has ", file->size(), " bytes; the manifest lists ", expected.size);
  if (version == 1 && checksum_of(*file) != expected.checksum)
    throw CheckpointError(path.string(), ": is damaged: its bytes do not match the checksum in the manifest");
  if (version == 1) return;
  const formats::SafetensorsFile header(std::move(file), {.require_checksums = true});
  if (header.checksum() != expected.checksum)
    throw CheckpointError(path.string(), ": is not the file listed in the manifest: its checksum is ",
                          header.checksum(), " instead of ", expected.checksum);
}

void check_files(const fs::path& path, Findings& findings) {
  const auto [folder, manifest] = saving::open_checkpoint(path);
  for (const saving::Manifest::File& file : manifest.files) try {
      check_file(folder / file.name, file, manifest.version);
    } catch (const std::exception& error) {
      add(findings, error);
    }
}

// Reads every tensor, so that each damaged one is named.
void check_contents(const fs::path& path, bool allow_unknown, Findings& findings) {
  for (const Entry& tensor : open_contents(path, allow_unknown).tensors) try {
      tensor.read();
    } catch (const std::exception& error) {
      add(findings, error);
    }
}

// Removes duplicates, for example of a missing file.
void say_once(std::vector<std::string>& lines) {
  std::ranges::sort(lines);
  lines.erase(std::ranges::unique(lines).begin(), lines.end());
}

}  // namespace

Findings findings_of(const fs::path& path, bool allow_unknown) {
  Findings findings;
  try {
    const Kind kind = kind_of(path);
    if (kind == Kind::CHECKPOINT) check_files(path, findings);
    if (kind == Kind::PT) findings.damage = formats::damaged_entries(*formats::open_file(path));
    check_contents(path, allow_unknown, findings);
  } catch (const std::exception& error) {
    add(findings, error);
  }
  say_once(findings.damage);
  say_once(findings.unsupported);
  return findings;
}

}  // namespace composer::cli
