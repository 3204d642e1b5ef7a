#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "composer/core/export.h"
#include "composer/net/http.h"

namespace composer::net {

struct RemoteFile {
  std::string name;  // relative to the store's URI
  std::uint64_t size = 0;
};

// The files below a URI. File names are relative to it, with "/" between their parts. A part must not be empty, "." or
// "..", because these could lead out of the folder. A file is replaced as a whole, except where an HTTP server does
// otherwise. Functions throw ConfigError for invalid names, HttpError for errors of a server, and Error for local
// files; no message contains secrets. Use from one thread at a time.
class COMPOSER_EXPORT RemoteStore {
 public:
  RemoteStore() = default;
  RemoteStore(const RemoteStore&) = delete;
  RemoteStore& operator=(const RemoteStore&) = delete;
  virtual ~RemoteStore();

  virtual std::string uri() const = 0;  // for messages
  std::string uri_of(std::string_view name) const;
  void put(const std::filesystem::path& file, const std::string& name, const std::stop_token& stop = {});
  // Downloads a file to `to`, which is replaced as a whole or not at all. The download has a temporary name in the same
  // folder until its size, and its MD5 if the server reports one, are verified and it is on the disk.
  void get(const std::string& name, const std::filesystem::path& to, const std::stop_token& stop = {});
  // Lists the files whose names begin with `prefix`, sorted by name. Throws ConfigError for http:// and https://.
  virtual std::vector<RemoteFile> list(const std::string& prefix = {}, const std::stop_token& stop = {}) = 0;
  void remove(const std::string& name, const std::stop_token& stop = {});  // a missing file is no error
  // The size of the file in bytes; nullopt: it is missing. Throws HttpError if the server does not report the size.
  std::optional<std::uint64_t> size(const std::string& name, const std::stop_token& stop = {});
  // The present time by the server's clock, which all its clients share, to the second. nullopt: unknown. This is so
  // before the first response, and for folders, because each machine that uses a folder has its own clock.
  virtual std::optional<std::chrono::system_clock::time_point> server_time() const { return {}; }

 protected:
  struct Expected {
    std::optional<std::uint64_t> size;
    std::string md5;  // hexadecimal; empty: unknown
  };
  // Implement the functions above. `name` has been checked.
  virtual void do_put(const std::filesystem::path& file, const std::string& name, const std::stop_token& stop) = 0;
  virtual void do_remove(const std::string& name, const std::stop_token& stop) = 0;
  virtual std::optional<std::uint64_t> do_size(const std::string& name, const std::stop_token& stop) = 0;
  // Downloads to `to`, which may exist, and returns what the server reports about the file.
  virtual Expected fetch(const std::string& name, const std::filesystem::path& to, const std::stop_token& stop) = 0;
};

struct StoreOptions {
  HttpOptions http = {};               // of the requests
  std::uint64_t part_size = 16 << 20;  // >= 5 MiB for S3; longer files are uploaded to S3 in parts
};

// Whether a path is a URI such as s3://bucket/folder.
COMPOSER_EXPORT bool is_uri(std::string_view path);

// Opens file:///folder, http://host/folder, https://host/folder or s3://bucket/folder. Sends nothing. For S3 it reads
// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, or the profile AWS_PROFILE of ~/.aws/credentials;
// AWS_REGION, AWS_DEFAULT_REGION or ~/.aws/config; and the endpoint S3_ENDPOINT_URL, AWS_ENDPOINT_URL_S3 or
// AWS_ENDPOINT_URL. Throws ConfigError for any other URI and for missing credentials.
COMPOSER_EXPORT std::unique_ptr<RemoteStore> open_store(const std::string& uri, StoreOptions options = {});

}  // namespace composer::net
