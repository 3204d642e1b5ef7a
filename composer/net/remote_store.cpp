#include "composer/net/remote_store.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <unistd.h>
#include <utility>

#include "composer/core/error.h"
#include "composer/net/digest.h"
#include "composer/net/plain_path.h"
#include "composer/net/s3_store.h"
#include "composer/util/new_file.h"
#include "composer/util/write_all.h"

namespace composer::net {
namespace {

namespace fs = std::filesystem;

// Names that leave the folder could overwrite any file. Servers and proxies may resolve "." and "..", and drop empty
// parts.
void check_name(const std::string& name) {
  if (!is_plain_path(name)) throw ConfigError("\"", name, "\" cannot be the name of a file in a remote folder");
}

class FileStore final : public RemoteStore {
 public:
  explicit FileStore(fs::path folder) : folder_(std::move(folder)) {}

  std::string uri() const override { return "file://" + folder_.string(); }

  void do_put(const fs::path& file, const std::string& name, const std::stop_token& stop) override {
    copy(file, folder_ / name, stop);
  }

  std::vector<RemoteFile> list(const std::string& prefix, const std::stop_token& /*stop*/) override {
    std::vector<RemoteFile> files;
    const fs::path from = folder_ / fs::path(prefix).parent_path();
    if (!fs::is_directory(from)) return files;
    for (const auto& entry : fs::recursive_directory_iterator(from)) {
      const std::string name = entry.path().lexically_relative(folder_).generic_string();
      if (entry.is_regular_file() && name.starts_with(prefix)) files.push_back({name, entry.file_size()});
    }
    std::ranges::sort(files, {}, &RemoteFile::name);
    return files;
  }

  void do_remove(const std::string& name, const std::stop_token& /*stop*/) override {
    util::remove_leftovers_of(folder_ / name);
    fs::remove(folder_ / name);
    for (fs::path up = (folder_ / name).parent_path(); up != folder_; up = up.parent_path())
      if (std::error_code error; !fs::remove(up, error)) return;  // the folder is not empty
  }

  std::optional<std::uint64_t> do_size(const std::string& name, const std::stop_token& /*stop*/) override {
    std::error_code error;
    const std::uint64_t bytes = fs::file_size(folder_ / name, error);
    if (error == std::errc::no_such_file_or_directory || error == std::errc::is_a_directory) return {};
    if (error) throw Error(uri_of(name), ": cannot be read: ", error.message());
    return bytes;
  }

 protected:
  Expected fetch(const std::string& name, const fs::path& to, const std::stop_token& stop) override {
    const auto bytes = do_size(name, stop);
    if (!bytes) throw HttpError(uri_of(name) + ": does not exist", 404, "", false);
    copy(folder_ / name, to, stop);
    return {bytes, ""};
  }

 private:
  static void copy(const fs::path& from, const fs::path& to, const std::stop_token& stop) {
    std::ifstream input(from, std::ios::binary);
    if (!input) throw Error(from.string(), ": cannot be read: ", std::strerror(errno));
    util::NewFile output(to);
    std::vector<char> piece(1 << 20);
    do {
      if (stop.stop_requested()) throw Cancelled(to.string(), ": was cancelled");
      input.read(piece.data(), static_cast<std::streamsize>(piece.size()));
      output.write(piece.data(), static_cast<std::size_t>(input.gcount()));
    } while (input);
    if (input.bad()) throw Error(from.string(), ": cannot be read to its end");
    output.commit();
  }

  fs::path folder_;
};

class HttpStore final : public RemoteStore {
 public:
  HttpStore(std::string url, HttpOptions options) : url_(std::move(url)), client_(std::move(options)) {}

  std::string uri() const override { return shown_url(url_); }

  std::optional<std::chrono::system_clock::time_point> server_time() const override { return client_.server_time(); }

  void do_put(const fs::path& file, const std::string& name, const std::stop_token& stop) override {
    client_.send({"PUT", url(name), {}, FilePart{file}}, stop);
  }

  std::vector<RemoteFile> list(const std::string& /*prefix*/, const std::stop_token& /*stop*/) override {
    throw ConfigError(uri(), ": HTTP servers do not list files; use s3:// or file:// where that is needed");
  }

  void do_remove(const std::string& name, const std::stop_token& stop) override {
    try {
      client_.send({"DELETE", url(name)}, stop);
    } catch (const HttpError& error) {
      if (error.status != 404 && error.status != 410) throw;
    }
  }

  std::optional<std::uint64_t> do_size(const std::string& name, const std::stop_token& stop) override {
    try {
      HttpRequest request{"HEAD", url(name)};
      request.redirects = kRedirects;
      return length_of(client_.send(request, stop), uri_of(name));
    } catch (const HttpError& error) {
      if (error.status != 404 && error.status != 410) throw;
      return {};
    }
  }

 protected:
  Expected fetch(const std::string& name, const fs::path& to, const std::stop_token& stop) override {
    HttpRequest request{"GET", url(name)};
    request.to_file = to;
    request.redirects = kRedirects;
    return {length_of(client_.send(request, stop)), ""};
  }

 private:
  static constexpr int kRedirects = 10;

  // Inserts the name before the query (for example of a signed URL).
  std::string url(const std::string& name) const {
    const std::size_t query = std::min(url_.find('?'), url_.size());
    std::string path = url_.substr(0, query);
    while (path.ends_with('/')) path.pop_back();
    return path + "/" + percent_encoded(name, /*keep_slashes=*/true) + url_.substr(query);
  }

  std::string url_;
  HttpClient client_;
};

void sync_file(const fs::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0 || ::fsync(file) != 0) {
    const int code = errno;
    if (file >= 0) ::close(file);
    throw Error(path.string(), ": cannot be written to the disk: ", std::strerror(code));
  }
  ::close(file);
}

}  // namespace

std::optional<std::uint64_t> length_of(const HttpResponse& response) {
  const std::string text = response.header("content-length");
  std::uint64_t bytes = 0;
  if (text.empty() || std::from_chars(text.data(), text.data() + text.size(), bytes).ec != std::errc()) return {};
  return bytes;
}

std::uint64_t length_of(const HttpResponse& response, const std::string& uri) {
  if (const auto bytes = length_of(response)) return *bytes;
  throw HttpError("HEAD " + uri + ": the server does not tell its size, as it sends no Content-Length", response.status,
                  "", false);
}

RemoteStore::~RemoteStore() = default;

void RemoteStore::put(const fs::path& file, const std::string& name, const std::stop_token& stop) {
  check_name(name);
  do_put(file, name, stop);
}

void RemoteStore::remove(const std::string& name, const std::stop_token& stop) {
  check_name(name);
  do_remove(name, stop);
}

std::optional<std::uint64_t> RemoteStore::size(const std::string& name, const std::stop_token& stop) {
  check_name(name);
  return do_size(name, stop);
}

std::string RemoteStore::uri_of(std::string_view name) const { return uri() + "/" + std::string(name); }

void RemoteStore::get(const std::string& name, const fs::path& to, const std::stop_token& stop) {
  check_name(name);
  const fs::path folder = to.has_parent_path() ? to.parent_path() : fs::path(".");
  fs::create_directories(folder);
  const fs::path temporary = folder / ("." + to.filename().string() + "." + std::to_string(::getpid()) + ".part");
  try {
    const Expected expected = fetch(name, temporary, stop);
    const std::uint64_t size = fs::file_size(temporary);
    if (expected.size && size != *expected.size)
      throw HttpError(join(uri_of(name), ": has ", *expected.size, " bytes, and ", size, " arrived"), 0, "", true);
    if (!expected.md5.empty() && md5_of_file(temporary) != expected.md5)
      throw HttpError(join(uri_of(name), ": was damaged on its way: its MD5 is not ", expected.md5), 0, "", true);
    sync_file(temporary);
    fs::rename(temporary, to);
    if (!util::sync_folder(folder))
      throw Error(folder.string(), ": cannot be written to the disk: ", std::strerror(errno));
  } catch (...) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw;
  }
}

bool is_uri(std::string_view path) {
  const std::size_t end = path.find("://");
  return end != std::string::npos && end > 0 && path.substr(0, end).find('/') == std::string::npos;
}

std::unique_ptr<RemoteStore> open_store(const std::string& uri, StoreOptions options) {
  if (uri.starts_with("s3://")) return open_s3_store(uri, std::move(options));
  if (uri.starts_with("http://") || uri.starts_with("https://"))
    return std::make_unique<HttpStore>(uri, std::move(options.http));
  if (uri.starts_with("file:///")) {
    fs::path folder(uri.substr(std::string_view("file://").size()));
    if (!folder.has_filename()) folder = folder.parent_path();
    return std::make_unique<FileStore>(folder.lexically_normal());
  }
  throw ConfigError(shown_url(uri),
                    ": is not supported; write s3://bucket/folder, https://host/folder or file:///folder");
}

}  // namespace composer::net
