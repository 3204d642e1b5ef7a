#include "composer/net/s3_store.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <ctime>
#include <exception>
#include <map>
#include <utility>
#include <variant>

#include "composer/core/error.h"
#include "composer/net/aws.h"
#include "composer/net/digest.h"
#include "composer/net/plain_path.h"
#include "composer/net/server_message.h"
#include "composer/util/environment.h"
#include "composer/util/random_text.h"

namespace composer::net {
namespace {

namespace fs = std::filesystem;
using Query = std::vector<std::pair<std::string, std::string>>;
using Body = decltype(HttpRequest::body);

constexpr std::uint64_t kMostParts = 10'000;
constexpr std::uint64_t kLeastPart = 5 << 20;
// The header of an object uploaded in parts that contains the id of its upload.
constexpr const char* kMark = "x-amz-meta-libcomposer-upload";

std::uint64_t number_of(const std::string& text) {
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// Decodes a key of a listing. S3 encodes keys like form fields if the request asks for it.
std::string key_of(std::string text) {
  std::ranges::replace(text, '+', ' ');
  return percent_decoded(text);
}

std::string unquoted(std::string text) {
  std::erase(text, '"');
  return text;
}

bool is_md5(const std::string& text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::string bytes_of(const std::string& hexadecimal) {
  std::string bytes;
  for (std::size_t i = 0; i < hexadecimal.size(); i += 2) {
    unsigned value = 0;
    std::from_chars(hexadecimal.data() + i, hexadecimal.data() + i + 2, value, 16);
    bytes += static_cast<char>(value);
  }
  return bytes;
}

// The ETag of an unencrypted object made of these parts; empty if the parts' ETags are not MD5.
std::string joined_etag(const std::vector<std::string>& parts) {
  std::string bytes;
  for (const std::string& etag : parts) {
    if (!is_md5(etag)) return {};
    bytes += bytes_of(etag);
  }
  return join(md5(bytes), '-', parts.size());
}

// Whether new credentials may help. Responses to HEAD contain no error code.
bool may_be_expired(const HttpError& error) {
  if (error.code.empty()) return error.status == 400 || error.status == 401 || error.status == 403;
  return error.code == "ExpiredToken" || error.code == "InvalidToken" || error.code == "InvalidAccessKeyId" ||
         error.code == "TokenRefreshRequired";
}

std::string hash_of(const Body& body) {
  if (const auto* part = std::get_if<FilePart>(&body)) return sha256(part->path, part->offset, *part->size);
  const auto* text = std::get_if<std::string>(&body);
  return sha256(text != nullptr ? *text : std::string());
}

// Whether the text can be the name of a region, at AWS or elsewhere. The server sends it, and it becomes a part of the
// host name.
bool is_region(const std::string& text) {
  return !text.empty() && text.size() < 64 &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string::npos;
}

struct Location {
  std::string scheme, host, folder;  // the URL of a key is scheme + host + folder + "/" + key
};

// The location of a bucket: at AWS, a host of its own unless TLS would reject its name; elsewhere, a folder.
Location location_of(const std::string& bucket, const std::string& endpoint, const std::string& region) {
  if (endpoint.empty()) {
    const std::string host = "s3." + region + ".amazonaws.com";
    if (bucket.find('.') == std::string::npos) return {"https://", bucket + "." + host, ""};
    return {"https://", host, "/" + bucket};
  }
  const std::size_t begin = endpoint.find("://") + 3;
  const std::size_t slash = std::min(endpoint.find('/', begin), endpoint.size());
  const std::string scheme = endpoint.substr(0, begin), host = endpoint.substr(begin, slash - begin);
  return {scheme, host_header(scheme, host), endpoint.substr(slash) + "/" + percent_encoded(bucket)};
}

class S3Store final : public RemoteStore {
 public:
  S3Store(std::string bucket, std::string prefix, StoreOptions options)
      : bucket_(std::move(bucket)),
        prefix_(std::move(prefix)),
        part_size_(options.part_size),
        keys_(find_keys(environment)),
        region_(find_region(environment)),
        at_(location_of(bucket_, find_endpoint(environment), region_)),
        abort_client_(without_retries(options.http)),
        client_(std::move(options.http)) {
    if (part_size_ < kLeastPart)
      throw ConfigError("s3: part_size must be at least ", kLeastPart, " bytes, not ", part_size_);
  }

  std::string uri() const override { return "s3://" + bucket_ + (prefix_.empty() ? "" : "/" + prefix_); }

  std::optional<std::chrono::system_clock::time_point> server_time() const override { return client_.server_time(); }

  void do_put(const fs::path& file, const std::string& name, const std::stop_token& stop) override {
    std::error_code error;
    const std::uint64_t size = fs::file_size(file, error);
    if (error) throw Error(file.string(), ": cannot be read: ", error.message());
    if (size > part_size_)
      put_in_parts(file, size, name, stop);
    else
      call("PUT", key(name), {}, FilePart{file, 0, size}, stop);
  }

  std::vector<RemoteFile> list(const std::string& prefix, const std::stop_token& stop) override {
    std::vector<RemoteFile> files;
    const std::string all = prefix_.empty() ? prefix : prefix_ + "/" + prefix;
    const std::size_t skipped = all.size() - prefix.size();
    constexpr int kMostPages = 10'000;  // of up to 1,000 files each
    std::string next;
    int pages = 0;
    do {
      Query query{{"list-type", "2"}, {"encoding-type", "url"}, {"prefix", all}};
      if (!next.empty()) query.emplace_back("continuation-token", next);
      const std::string page = call("GET", "", query, {}, stop).body;
      const bool encoded = xml_text(page, "EncodingType") == "url";
      for (std::size_t at = 0; (at = page.find("<Contents>", at)) != std::string::npos; ++at) {
        const std::string entry = page.substr(at, page.find("</Contents>", at) - at);
        const std::string key = xml_text(entry, "Key"), found = encoded ? key_of(key) : key;
        if (found.size() > skipped) files.push_back({found.substr(skipped), number_of(xml_text(entry, "Size"))});
      }
      const std::string before = std::exchange(next, xml_text(page, "NextContinuationToken"));
      if (!next.empty() && (next == before || ++pages == kMostPages))
        throw HttpError(join(uri_of(prefix), ": the server's list of files does not end"), 0, "", false);
    } while (!next.empty());
    std::ranges::sort(files, {}, &RemoteFile::name);
    return files;
  }

  void do_remove(const std::string& name, const std::stop_token& stop) override {
    try {
      call("DELETE", key(name), {}, {}, stop);
    } catch (const HttpError& error) {
      if (error.status != 404 || error.code == "NoSuchBucket") throw;
    }
  }

  std::optional<std::uint64_t> do_size(const std::string& name, const std::stop_token& stop) override {
    try {
      return length_of(call("HEAD", key(name), {}, {}, stop), uri_of(name));
    } catch (const HttpError& error) {
      if (error.status != 404) throw;
      return {};
    }
  }

 protected:
  Expected fetch(const std::string& name, const fs::path& to, const std::stop_token& stop) override {
    const HttpResponse response = call("GET", key(name), {}, {}, stop, to);
    Expected expected;
    expected.size = length_of(response);
    // For objects uploaded in parts, and with other kinds of encryption, the ETag is not an MD5.
    const std::string etag = unquoted(response.header("etag"));
    const std::string encryption = response.header("x-amz-server-side-encryption");
    const bool other = (!encryption.empty() && encryption != "AES256") ||
                       response.headers.contains("x-amz-server-side-encryption-customer-algorithm");
    if (is_md5(etag) && !other) expected.md5 = etag;
    return expected;
  }

 private:
  static HttpOptions without_retries(HttpOptions options) {
    options.retry.attempts = 1;
    options.total_limit = std::chrono::seconds(10);
    return options;
  }

  std::string key(const std::string& name) const {
    return "/" + percent_encoded(prefix_.empty() ? name : prefix_ + "/" + name, /*keep_slashes=*/true);
  }

  using Headers = std::map<std::string, std::string>;  // names in lower case

  HttpRequest request(const char* method, const std::string& path, const Query& query, Body body,
                      const Headers& headers = {}) const {
    const AwsRequest to_sign{method, at_.host, at_.folder + path, query, hash_of(body)};
    HttpRequest request{method, at_.scheme + at_.host + to_sign.path, {}, std::move(body)};
    for (const auto& [name, value] : headers) request.headers.push_back({name, value});
    if (!query.empty()) request.url += "?" + query_text(query);
    request.more_headers = [this, to_sign, headers] {
      return signature(to_sign, keys_, region_, std::time(nullptr) + clock_lag_.count(), headers);
    };
    return request;
  }

  HttpResponse call(const char* method, const std::string& path, const Query& query, const Body& body,
                    const std::stop_token& stop, const fs::path& to_file = {}, const Headers& headers = {}) {
    const auto send = [&] {
      HttpRequest made = request(method, path, query, body, headers);
      made.to_file = to_file;
      return client_.send(made, stop);
    };
    try {
      return send();
    } catch (const HttpError& error) {
      if (!adapt_to(error)) throw;
    }
    return send();
  }

  // Adapts to the error (region, clock, credentials). Returns whether the same request may succeed now.
  bool adapt_to(const HttpError& error) {
    if (is_region(error.region) && error.region != region_) {
      warn(join("s3: the bucket ", bucket_, " is in the region ", error.region, ", not in ", region_,
                "; set AWS_REGION=", error.region));
      region_ = error.region;
      at_ = location_of(bucket_, find_endpoint(environment), region_);
      return true;
    }
    return (error.status == 403 && read_clock()) || (may_be_expired(error) && reload_keys());
  }

  // Returns whether the server's clock differs from the time of the last signatures by more than S3 allows. Later
  // requests are signed with the server's time.
  bool read_clock() {
    constexpr std::chrono::minutes kAllowed(15);
    const auto server = client_.server_time();
    if (!server) return false;
    const auto lag = std::chrono::round<std::chrono::seconds>(*server - std::chrono::system_clock::now());
    if (std::chrono::abs(lag - clock_lag_) < kAllowed) return false;
    warn(join("s3: the clock of this machine differs from the server's by ", std::chrono::abs(lag).count(),
              " s; requests are signed with the server's"));
    clock_lag_ = lag;
    return true;
  }

  // Reads the credentials again, and returns whether they have changed.
  bool reload_keys() {
    try {
      const AwsKeys before = std::exchange(keys_, find_keys(environment));
      return keys_ != before;
    } catch (const ConfigError&) {  // the caller reports the original error
      return false;
    }
  }

  // Identifies the object of an upload in parts, among all objects with this name.
  struct Joined {
    std::uint64_t size;
    std::string mark, etag;
  };

  void put_in_parts(const fs::path& file, std::uint64_t size, const std::string& name, const std::stop_token& stop) {
    const std::uint64_t part_size = s3_part_size(size, part_size_);
    const std::string path = key(name);
    const std::string mark = util::random_text(16);
    const HttpResponse begun = call("POST", path, {{"uploads", ""}}, {}, stop, {}, {{kMark, mark}});
    const std::string id = xml_text(begun.body, "UploadId");
    if (id.empty()) throw HttpError("POST " + uri_of(name) + ": the server began no upload in parts", 200, "", true);
    try {
      std::vector<std::string> etags;
      for (std::uint64_t offset = 0; offset < size; offset += part_size) {
        const Query query{{"partNumber", std::to_string(etags.size() + 1)}, {"uploadId", id}};
        const FilePart part{file, offset, std::min(part_size, size - offset)};
        etags.push_back(unquoted(call("PUT", path, query, part, stop).header("etag")));
      }
      complete_upload(name, id, etags, {size, mark, joined_etag(etags)}, stop);
    } catch (...) {
      abort_upload(path, id);
      throw;
    }
  }

  void complete_upload(const std::string& name, const std::string& id, const std::vector<std::string>& etags,
                       const Joined& joined, const std::stop_token& stop) {
    std::string xml = "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">";
    for (std::size_t i = 0; i < etags.size(); ++i)
      xml += join("<Part><PartNumber>", i + 1, "</PartNumber><ETag>", etags[i], "</ETag></Part>");
    xml += "</CompleteMultipartUpload>";
    std::string body;
    try {
      body = call("POST", key(name), {{"uploadId", id}}, xml, stop).body;
    } catch (const HttpError& error) {
      // The first of two attempts may have succeeded although its response was lost.
      if (error.code != "NoSuchUpload" || !is_uploaded(name, joined, stop)) throw;
      return;
    }
    if (body.find("<Error>") == std::string::npos) return;
    const ServerMessage said = message_of(body);  // S3 may report an error with status 200
    throw HttpError("POST " + uri_of(name) + ": the parts were not joined: " + said.code + " " + said.text, 200,
                    said.code, said.code == "InternalError" || said.code == "SlowDown");
  }

  // Compares the mark, because the ETag of an encrypted object is arbitrary; at servers that store no marks, the ETag.
  bool is_uploaded(const std::string& name, const Joined& joined, const std::stop_token& stop) {
    try {
      const HttpResponse response = call("HEAD", key(name), {}, {}, stop);
      if (length_of(response) != joined.size) return false;
      return response.header(kMark) == joined.mark ||
             (!joined.etag.empty() && unquoted(response.header("etag")) == joined.etag);
    } catch (const HttpError&) {  // the caller reports why it called this
      return false;
    }
  }

  // Aborts the upload, because parts that are left behind cost money.
  void abort_upload(const std::string& path, const std::string& id) noexcept {
    try {
      abort_client_.send(request("DELETE", path, {{"uploadId", id}}, {}));
    } catch (const HttpError& error) {
      if (error.status != 404) warn_of_parts();  // with 404, no parts are left
    } catch (...) {
      warn_of_parts();
    }
  }

  void warn_of_parts() const {
    warn(join("s3: the parts of a failed upload stay in the bucket ", bucket_, ": ",
              describe(std::current_exception())));
  }

  std::string bucket_, prefix_;
  std::uint64_t part_size_;
  AwsKeys keys_;
  std::string region_;
  std::chrono::seconds clock_lag_{0};  // how far this machine's clock is behind the server's
  Location at_;
  HttpClient abort_client_, client_;
};

}  // namespace

std::uint64_t s3_part_size(std::uint64_t size, std::uint64_t wished) {
  constexpr std::uint64_t kMiB = 1 << 20;
  const std::uint64_t least = (size + kMostParts - 1) / kMostParts;
  return std::max(wished, (least + kMiB - 1) / kMiB * kMiB);
}

std::unique_ptr<RemoteStore> open_s3_store(const std::string& uri, StoreOptions options) {
  const std::string rest = uri.substr(std::string_view("s3://").size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  const std::string bucket = rest.substr(0, slash);
  std::string prefix = slash < rest.size() ? rest.substr(slash + 1) : "";
  while (prefix.ends_with('/')) prefix.pop_back();
  if (bucket.empty()) throw ConfigError(uri, ": has no bucket; write s3://bucket/folder");
  // Ceph has buckets named "tenant:bucket". AWS does not, and there the name would become a part of the host.
  const bool of_tenant = bucket.find(':') != std::string::npos && !find_endpoint(environment).empty();
  const std::string allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
  if (bucket.find_first_not_of(of_tenant ? allowed + ":" : allowed) != std::string::npos)
    throw ConfigError(uri, ": ", bucket, " cannot be the name of a bucket");
  if (!prefix.empty() && !is_plain_path(prefix))
    throw ConfigError(uri, ": ", prefix, " cannot be a folder of a bucket, as a part of it is empty, \".\" or \"..\"");
  return std::make_unique<S3Store>(bucket, prefix, std::move(options));
}

}  // namespace composer::net
