#include "composer/trainer/shared_files.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "composer/checkpoint/scratch.h"
#include "composer/core/error.h"
#include "composer/dist/world.h"
#include "composer/util/checksum.h"
#include "composer/util/text.h"

namespace composer {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPiece = std::size_t{16} << 20;   // bytes that are sent at once
constexpr std::uint64_t kEnd = std::uint64_t{1} << 20;  // bytes at each end of a file that are compared

struct File {
  std::string name;  // empty: the path itself
  std::uint64_t size = 0;
  std::string checksum;  // of both ends

  bool operator==(const File&) const = default;
};

// Reads in pieces, so that a large file is never in memory as a whole.
template <class F>
void read_pieces(const fs::path& path, F&& use) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw CheckpointError(path.string(), ": cannot be read");
  std::string piece(kPiece, '\0');
  while (in.read(piece.data(), static_cast<std::streamsize>(piece.size())), in.gcount() > 0)
    use(std::string_view(piece).substr(0, static_cast<std::size_t>(in.gcount())));
}

// Compares the size and both ends: a file with this name on another rank is either the same, or from another run or
// time. A checkpoint's manifest is shorter than the compared part, and contains the checksums of the other files.
File look_at(const fs::path& path, std::string name) {
  const std::uint64_t size = fs::file_size(path);
  std::ifstream in(path, std::ios::binary);
  if (!in) throw CheckpointError(path.string(), ": cannot be read");
  util::Checksum checksum;
  std::string end(static_cast<std::size_t>(std::min<std::uint64_t>(size, kEnd)), '\0');
  for (const std::uint64_t from : {std::uint64_t{0}, size - end.size()}) {
    if (!in.seekg(static_cast<std::streamoff>(from)) || !in.read(end.data(), static_cast<std::streamsize>(end.size())))
      throw CheckpointError(path.string(), ": cannot be read");
    checksum.update(end.data(), end.size());
  }
  return {std::move(name), size, checksum.text()};
}

std::vector<File> list(const fs::path& path) {
  if (!fs::is_directory(path)) return {look_at(path, "")};
  std::vector<File> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(path))
    if (entry.is_regular_file()) files.push_back(look_at(entry.path(), entry.path().filename().string()));
  std::ranges::sort(files, {}, &File::name);
  return files;
}

std::string text_of_listing(const fs::path& path, const std::vector<File>& files) {
  std::string text = join(path.string(), '\0', fs::is_directory(path) ? 1 : 0, '\0');
  for (const File& file : files) text += join(file.name, '\0', file.size, '\0', file.checksum, '\0');
  return text;
}

struct Listing {
  fs::path path;
  bool is_folder = false;
  std::vector<File> files;
};

Listing parse(const std::string& text) {
  std::vector<std::string> fields;
  util::InText in(text);
  for (std::string field; std::getline(in, field, '\0');) fields.push_back(field);
  Listing listing{.path = fields.at(0), .is_folder = fields.at(1) == "1", .files = {}};
  for (std::size_t i = 2; i + 2 < fields.size(); i += 3)
    listing.files.push_back({fields[i], std::stoull(fields[i + 1]), fields[i + 2]});
  return listing;
}

bool has(const Listing& listing) {
  try {
    return std::ranges::all_of(listing.files, [&](const File& file) {
      const fs::path path = file.name.empty() ? listing.path : listing.path / file.name;
      return fs::is_regular_file(path) && fs::file_size(path) == file.size && look_at(path, file.name) == file;
    });
  } catch (const std::exception&) {
    return false;
  }
}

// A collective, also for ranks that need no copy. Rank 0 sends; the other ranks write the bytes to `to`, if it is not
// empty.
void copy(dist::World& world, const fs::path& from, std::uint64_t size, const fs::path& to) {
  std::ofstream out;
  if (!to.empty()) out.open(to, std::ios::binary);
  const auto put = [&](const std::string& piece) {
    if (!to.empty()) out.write(piece.data(), static_cast<std::streamsize>(piece.size()));
  };
  if (world.rank() == 0) {
    read_pieces(from, [&](std::string_view piece) { world.broadcast(piece); });
  } else {
    for (std::uint64_t got = 0; got < size;) {
      const std::string piece = world.broadcast("");
      got += piece.size();
      put(piece);
    }
  }
  if (!to.empty() && !out.flush()) throw CheckpointError(to.string(), ": cannot be written; is the disk full?");
}

}  // namespace

SharedFiles::SharedFiles(dist::World& world, const fs::path& of_rank_0) {
  const Listing listing =
      parse(world.broadcast(world.rank() == 0 ? text_of_listing(of_rank_0, list(of_rank_0)) : std::string()));
  path_ = listing.path;
  const bool mine = world.rank() == 0 || has(listing);
  const std::vector<std::string> all = world.all_gather(mine ? "1" : "0");
  if (std::ranges::find(all, "0") == all.end()) return;
  fs::path folder;
  if (!mine) {
    copies_ = std::make_unique<saving::Scratch>(fs::temp_directory_path(), "composer-shared-");
    folder = copies_->path() / listing.path.filename();
    path_ = folder;
    if (listing.is_folder) fs::create_directories(folder);
  }
  for (const File& file : listing.files)
    copy(world, file.name.empty() ? listing.path : listing.path / file.name, file.size,
         mine                ? fs::path()
         : file.name.empty() ? folder
                             : folder / file.name);
}

SharedFiles::~SharedFiles() = default;

}  // namespace composer
