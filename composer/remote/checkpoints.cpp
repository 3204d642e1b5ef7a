#include "composer/remote/checkpoints.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "composer/checkpoint/file_system.h"
#include "composer/checkpoint/scratch.h"
#include "composer/core/error.h"
#include "composer/net/aws.h"
#include "composer/remote/files.h"
#include "composer/util/checksum.h"
#include "composer/util/environment.h"
#include "composer/util/json.h"
#include "composer/util/letters.h"

namespace composer {
namespace {

namespace fs = std::filesystem;
using saving::Manifest;

const std::string kManifest = Manifest::kFileName;
constexpr const char* kFetch = ".fetch-";  // beside a save folder
constexpr int kLooks = 3, kDownloads = 5;  // attempts when files are replaced meanwhile
constexpr std::uint64_t kLargestManifest = util::kLongestJson;

fs::path folder_of_uploads() {
  if (const fs::path folder = cache_folder(); !folder.empty()) return folder / "uploads";
  throw ConfigError("save_folder: a URI needs a folder of this machine, and neither XDG_CACHE_HOME nor HOME is set");
}

std::string read_text(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// Names come from the server, and must not lead out of the folder or to the folder itself.
bool stays_below(const std::string& name) {
  const fs::path path(name);
  return !name.empty() && !path.is_absolute() &&
         std::ranges::none_of(path, [](const fs::path& part) { return part.empty() || part == "." || part == ".."; });
}

std::string in(const std::string& folder, const std::string& file) {
  return folder.empty() ? file : folder + "/" + file;
}

// Whether a listing contains all its files with the right sizes.
bool is_whole(const RemoteCheckpoint& checkpoint, const std::vector<net::RemoteFile>& listed) {
  return std::ranges::all_of(checkpoint.manifest.files, [&](const Manifest::File& file) {
    const std::string name = in(checkpoint.folder, file.name);
    return std::ranges::any_of(listed,
                               [&](const net::RemoteFile& one) { return one.name == name && one.size == file.size; });
  });
}

}  // namespace

std::string local_save_folder(const std::string& save_folder, const std::string& staging) {
  if (!net::is_uri(save_folder)) return save_folder;
  std::string readable = net::shown_url(save_folder);
  readable.erase(0, readable.find("://") + 3);
  for (char& c : readable)
    if (!util::is_letter_or_digit(c)) c = '-';
  util::Checksum checksum;
  // Two servers may have buckets with the same name.
  const std::string endpoint = save_folder.starts_with("s3://") ? net::find_endpoint(environment) : "";
  for (const std::string& part : {save_folder, endpoint}) checksum.update(part.data(), part.size());
  const std::string name = readable.substr(0, 80) + "-" + checksum.text().substr(5, 16);
  return (staging.empty() ? folder_of_uploads() : fs::path(staging)) / name / "checkpoints";
}

Manifest read_manifest(net::RemoteStore& store, const std::string& name, const std::stop_token& stop) {
  const saving::Scratch scratch(fs::temp_directory_path(), kFetchPrefix);
  const fs::path file = scratch.path() / kManifest;
  store.get(in(name, kManifest), file, stop);
  if (const auto size = fs::file_size(file); size > kLargestManifest)
    throw CheckpointError(store.uri_of(in(name, kManifest)), ": is no manifest: it has ", size, " bytes");
  return Manifest::parse(read_text(file), store.uri_of(in(name, kManifest)));
}

ReplacedError::~ReplacedError() = default;

std::string RemoteCheckpoint::name() const { return without_staged_folder(folder); }

namespace {

struct Look {
  std::optional<RemoteCheckpoint> newest;
  std::string unreadable;
  bool has_changed = false;  // something does not match the list of files, which is older
};

Look look_for_newest(net::RemoteStore& store, const std::function<bool(const RemoteCheckpoint&)>& fits) {
  const std::vector<net::RemoteFile> listed = store.list();
  Look look;
  for (const net::RemoteFile& file : listed) {
    const std::string end = "/" + kManifest;
    if (!file.name.ends_with(end) || file.size == 0 || !stays_below(file.name)) continue;
    try {
      if (file.size > kLargestManifest)
        throw CheckpointError(store.uri_of(file.name), ": is no manifest: it has ", file.size, " bytes");
      RemoteCheckpoint one{file.name.substr(0, file.name.size() - end.size()), {}};
      one.manifest = read_manifest(store, one.folder, {});
      if (!fits(one)) continue;
      if (!is_whole(one, listed)) {
        look.has_changed = true;
        look.unreadable +=
            "\n  " + store.uri_of(one.folder) + ": files are missing, or their sizes differ from the manifest";
      } else if (!look.newest || !saving::is_older(one.manifest, look.newest->manifest)) {
        look.newest = std::move(one);
      }
    } catch (const saving::NewerVersionError&) {
      throw;
    } catch (const CheckpointError& error) {
      look.unreadable += join("\n  ", error.what());
    } catch (const net::HttpError& error) {
      if (error.status != 404) throw;
      look.has_changed = true;
    }
  }
  return look;
}

}  // namespace

std::optional<RemoteCheckpoint> find_newest(net::RemoteStore& store,
                                            const std::function<bool(const RemoteCheckpoint&)>& fits) {
  Look look = look_for_newest(store, fits);
  for (int i = 1; i < kLooks && look.has_changed; ++i) look = look_for_newest(store, fits);
  if (!look.newest && !look.unreadable.empty())
    throw CheckpointError(
        "autoresume: ", store.uri(), " has checkpoints that cannot be read, and no other to resume ",
        "from; remove them, or set another save_folder, or autoresume = false to start from scratch:", look.unreadable);
  return std::move(look.newest);
}

void remove_leftover_downloads(const fs::path& folder) {
  saving::Scratch::remove_leftovers(folder.parent_path(), kFetch);
  for (const char* prefix : {kFetchPrefix, kLoadPrefix})
    saving::Scratch::remove_leftovers(fs::temp_directory_path(), prefix);
}

fs::path download(net::RemoteStore& store, const RemoteCheckpoint& checkpoint, const fs::path& folder,
                  const std::string& name) {
  saving::FileSystem& files = saving::real_files();
  const std::string uri = store.uri_of(checkpoint.folder);
  if (!stays_below(name)) throw CheckpointError(uri, ": cannot be the name of a folder");
  remove_leftover_downloads(folder);  // they may be large
  const fs::path to = folder / name;
  fs::create_directories(to.parent_path());
  const saving::Scratch scratch(folder.parent_path(),
                                kFetch);  // after a kill, no checkpoint with another name may be left in the folder
  try {
    for (const Manifest::File& file : checkpoint.manifest.files) {
      if (!stays_below(file.name)) throw CheckpointError(uri, ": has a file ", file.name);
      store.get(in(checkpoint.folder, file.name), scratch.path() / file.name);
    }
    // A process that replaces a checkpoint removes its manifest first. If the manifest is unchanged, all files belong
    // to it.
    store.get(in(checkpoint.folder, kManifest), scratch.path() / kManifest);
  } catch (const net::HttpError& error) {
    if (error.status != 404) throw;
    throw ReplacedError(uri, ": was replaced or deleted while it was downloaded; try again: ", error.what());
  }
  if (read_text(scratch.path() / kManifest) != checkpoint.manifest.to_json())
    throw ReplacedError(uri, ": was replaced while it was downloaded; try again");
  files.sync_folder(scratch.path());
  files.remove(to);
  files.rename(scratch.path(), to);
  files.sync_folder(to.parent_path());
  return to;
}

fs::path download_unreplaced(net::RemoteStore& store, RemoteCheckpoint found,
                             const std::function<std::optional<RemoteCheckpoint>()>& again, const fs::path& folder,
                             const std::string& name) {
  for (int i = 1;; ++i) try {
      return download(store, found, folder, name.empty() ? found.name() : name);
    } catch (const ReplacedError&) {
      auto other = i < kDownloads ? again() : std::nullopt;
      if (!other) throw;
      found = std::move(*other);
    }
}

namespace {

bool has_manifest(net::RemoteStore& store, const std::string& folder) {
  return store.size(in(folder, kManifest)).value_or(0) != 0;
}

// The parts of a URI: `leaf` is the last part of its path, and `parent` what precedes it. The query of a signed URL
// belongs to neither.
struct Place {
  std::string parent, leaf, path, query;  // path: parent and leaf, as written
};

Place place_of(const std::string& uri) {
  const bool is_url = uri.starts_with("http");
  const std::size_t end = is_url ? std::min(uri.find_first_of("?#"), uri.size()) : uri.size();
  Place place{.path = uri.substr(0, end)};
  if (end < uri.size() && uri[end] == '?') place.query = uri.substr(end, uri.find('#', end) - end);
  while (place.path.ends_with('/')) place.path.pop_back();
  const std::size_t slash = place.path.rfind('/') + 1;
  if (slash < place.path.find("://") + 4) return place;  // only a host or a bucket
  place.parent = place.path.substr(0, slash);
  place.leaf = place.path.substr(slash);
  if (is_url) place.leaf = net::percent_decoded(place.leaf);
  if (is_url && (!stays_below(place.leaf) || place.leaf == "."))
    throw ConfigError("load_path: ", net::shown_url(uri), ": names no file");
  return place;
}

// A signature usually is for one file, and for GET only.
template <class File, class Checkpoint>
fs::path download_signed(const File& file, const Checkpoint& checkpoint) {
  try {
    return file();
  } catch (const net::HttpError& error) {
    if (error.status < 400 || error.may_pass) throw;
    try {
      return checkpoint();
    } catch (const net::HttpError&) {
      throw error;
    }
  }
}

}  // namespace

fs::path download_from(const std::string& uri, const fs::path& folder) {
  const Place place = place_of(uri);
  const bool is_url = uri.starts_with("http");
  if (is_url && place.leaf.empty()) throw ConfigError("load_path: ", net::shown_url(uri), ": names no file");
  const auto store = net::open_store(place.path + place.query);
  // The manifest of the folder itself, or of the checkpoint that is about to replace it.
  const auto checkpoint = [&] {
    const auto here = [&]() -> std::optional<RemoteCheckpoint> {
      if (is_url || has_manifest(*store, "")) return RemoteCheckpoint{"", read_manifest(*store, "", {})};
      return RemoteCheckpoint{kStagedFolder, read_manifest(*store, kStagedFolder, {})};
    };
    return download_unreplaced(*store, *here(), here, folder, place.leaf.empty() ? "files" : place.leaf);
  };
  const auto file = [&] {
    net::open_store(place.parent + place.query)->get(place.leaf, folder / place.leaf);
    return folder / place.leaf;
  };
  if (!place.query.empty()) return download_signed(file, checkpoint);
  if (is_url ? store->size(kManifest).has_value() : has_manifest(*store, "") || has_manifest(*store, kStagedFolder))
    return checkpoint();
  if (!place.leaf.empty()) try {
      return file();
    } catch (const net::HttpError& error) {
      if (error.status != 404 && error.status != 410) throw;
    }
  const auto any = [](const RemoteCheckpoint&) { return true; };
  if (!is_url)
    if (const auto newest = find_newest(*store, any))
      return download_unreplaced(
          *store, *newest, [&] { return find_newest(*store, any); }, folder);
  throw CheckpointError("load_path: ", store->uri(),
                        ": is neither a checkpoint, nor a folder of checkpoints, nor a file");
}

}  // namespace composer
