#include "composer/net/transfer.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <string_view>
#include <unistd.h>
#include <utility>

#include <curl/curl.h>
#include <sys/stat.h>

#include "composer/core/error.h"
#include "composer/net/trimmed.h"
#include "composer/util/environment.h"
#include "composer/util/letters.h"
#include "composer/util/no_sigpipe.h"

namespace composer::net {
namespace {

constexpr std::size_t kMostOfError = 64 << 10;  // bytes of an error's body that are kept

class OpenFile {
 public:
  OpenFile(const std::filesystem::path& path, int flags, const char* purpose)
      : number_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
    if (number_ < 0) throw Error(path.string(), ": cannot be ", purpose, ": ", std::strerror(errno));
  }
  ~OpenFile() {
    if (number_ >= 0) ::close(number_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

// The body of a request: a text, which must outlive this object, or a part of a file.
struct RequestBody {
  std::string_view text;
  std::unique_ptr<OpenFile> file;
  std::uint64_t offset = 0, size = 0, sent = 0;
  std::string failure;

  explicit RequestBody(const HttpRequest& request) {
    if (const auto* bytes = std::get_if<std::string>(&request.body)) {
      text = *bytes;
      size = text.size();
    } else if (const auto* part = std::get_if<FilePart>(&request.body)) {
      file = std::make_unique<OpenFile>(part->path, O_RDONLY, "read");
      struct stat about {};
      if (::fstat(file->number(), &about) != 0)
        throw Error(part->path.string(), ": cannot be read: ", std::strerror(errno));
      const auto there = static_cast<std::uint64_t>(about.st_size);
      offset = part->offset;
      if (offset > there) throw Error(part->path.string(), ": has ", there, " bytes; a part from ", offset, " on");
      size = part->size.value_or(there - offset);
      if (size > there - offset)
        throw Error(part->path.string(), ": has ", there, " bytes; ", size, " from ", offset, " on were to be sent");
    }
  }

  std::size_t read(char* into, std::size_t room) {
    const std::size_t count = std::min<std::uint64_t>(room, size - sent);
    if (count == 0) return 0;
    if (!file) {
      std::memcpy(into, text.data() + sent, count);
      sent += count;
      return count;
    }
    const ssize_t got = ::pread(file->number(), into, count, static_cast<off_t>(offset + sent));
    if (got <= 0) {
      failure = got < 0 ? std::strerror(errno) : "the file became shorter while it was sent";
      return CURL_READFUNC_ABORT;
    }
    sent += static_cast<std::uint64_t>(got);
    return static_cast<std::size_t>(got);
  }
};

// Receives a response: its headers, and its body in memory or in a file.
struct Download {
  CURL* handle;
  HttpResponse& response;
  const std::filesystem::path& to_file;
  std::uint64_t most;
  std::unique_ptr<OpenFile> file;
  std::string file_failure;
  bool too_long = false;

  bool succeeded() const {
    long status = 0;
    curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
    return status >= 200 && status < 300;
  }

  std::size_t write(const char* data, std::size_t size) {
    if (!succeeded()) {  // the body of an error is truncated
      response.body.append(data, std::min(size, kMostOfError - std::min(kMostOfError, response.body.size())));
      return size;
    }
    if (file) {
      for (std::size_t done = 0; done < size;) {
        const ssize_t written = ::write(file->number(), data + done, size - done);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) {
          file_failure = std::strerror(errno);
          return 0;
        }
        done += static_cast<std::size_t>(written);
      }
      return size;
    }
    too_long = response.body.size() + size > most;
    if (too_long) return 0;
    response.body.append(data, size);
    return size;
  }

  void header(std::string_view line) {
    // The headers so far were those of a redirect, or of 100 Continue.
    if (line.starts_with("HTTP/")) response.headers.clear();
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) return;
    response.headers[util::lower(std::string(line.substr(0, colon)))] = trimmed(line.substr(colon + 1));
  }
};

std::size_t on_read(char* into, std::size_t size, std::size_t count, void* upload) {
  return static_cast<RequestBody*>(upload)->read(into, size * count);
}

int on_seek(void* upload, curl_off_t offset, int origin) {
  if (origin != SEEK_SET) return CURL_SEEKFUNC_CANTSEEK;
  static_cast<RequestBody*>(upload)->sent = static_cast<std::uint64_t>(offset);
  return CURL_SEEKFUNC_OK;
}

std::size_t on_write(char* data, std::size_t size, std::size_t count, void* download) {
  return static_cast<Download*>(download)->write(data, size * count);
}

std::size_t on_header(char* data, std::size_t size, std::size_t count, void* download) {
  static_cast<Download*>(download)->header({data, size * count});
  return size * count;
}

struct FreeList {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using List = std::unique_ptr<curl_slist, FreeList>;

void append(List& list, const std::string& line) {
  curl_slist* const shorter = list.release();
  curl_slist* const longer = curl_slist_append(shorter, line.c_str());
  list.reset(longer != nullptr ? longer : shorter);
  if (longer == nullptr) throw std::bad_alloc();
}

bool has(const std::vector<HttpHeader>& headers, std::string_view lower_case_name) {
  return std::ranges::any_of(headers,
                             [&](const HttpHeader& header) { return util::lower(header.name) == lower_case_name; });
}

std::vector<HttpHeader> headers_of(const HttpRequest& request) {
  std::vector<HttpHeader> headers = request.headers;
  if (request.more_headers) std::ranges::move(request.more_headers(), std::back_inserter(headers));
  return headers;
}

List header_lines(const std::vector<HttpHeader>& headers) {
  List list;
  for (const HttpHeader& header : headers) {
    if ((header.name + header.value).find_first_of("\r\n") != std::string::npos)
      throw ConfigError("the HTTP header ", header.name.substr(0, header.name.find_first_of("\r\n")),
                        " contains a line break");
    append(list, header.value.empty() ? header.name + ";" : header.name + ": " + header.value);
  }
  // Removes two headers that libcurl would add: a Content-Type for forms, and an Expect that makes it wait a second for
  // a reply that many servers never send.
  if (!has(headers, "content-type")) append(list, "Content-Type:");
  if (!has(headers, "expect")) append(list, "Expect:");
  return list;
}

// The file of certificates that the user has set, by the variables that other programs also read.
std::string certificates() {
  const std::string given = environment("CURL_CA_BUNDLE");
  return given.empty() ? environment("SSL_CERT_FILE") : given;
}

bool transfer_may_pass(CURLcode code) {
  switch (code) {
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_TOO_MANY_REDIRECTS:
    case CURLE_READ_ERROR:
    case CURLE_ABORTED_BY_CALLBACK:
    case CURLE_WRITE_ERROR:
    case CURLE_OUT_OF_MEMORY:
    case CURLE_BAD_FUNCTION_ARGUMENT:
      return false;
    default:
      return true;
  }
}

std::string remedy_of_transfer(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_RESOLVE_HOST:
      return "check the name in the URL and the network";
    case CURLE_COULDNT_RESOLVE_PROXY:
      return "check http_proxy and https_proxy";
    case CURLE_COULDNT_CONNECT:
      return "check that the server runs and that no firewall is in between";
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
      return "name the file of a private authority's certificates in CURL_CA_BUNDLE";
    default:
      return {};
  }
}

}  // namespace

struct Transfers::Handles {
  Handles() {
    static std::once_flag once;
    // Libcurl counts the calls, so calls of the program remain valid.
    std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
    easy = curl_easy_init();
    multi = curl_multi_init();
    if (easy == nullptr || multi == nullptr) {
      clear();
      throw Error("libcurl could not be initialised");
    }
  }
  ~Handles() { clear(); }
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;
  void clear() const {
    if (easy != nullptr) curl_easy_cleanup(easy);
    if (multi != nullptr) curl_multi_cleanup(multi);
  }

  // Like curl_easy_perform(), which does not wake up when a stop is requested.
  CURLcode perform(const std::stop_token& stop, bool& cancelled) const {
    const util::NoSigpipe no_sigpipe;
    const std::stop_callback wake(stop, [this] { curl_multi_wakeup(multi); });
    curl_multi_add_handle(multi, easy);
    CURLcode result = CURLE_FAILED_INIT;
    for (int running = 1; running > 0;) {
      cancelled = stop.stop_requested();
      if (cancelled || curl_multi_perform(multi, &running) != CURLM_OK) break;
      if (running > 0) curl_multi_poll(multi, nullptr, 0, 1000, nullptr);
    }
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi, &left))
      if (message->msg == CURLMSG_DONE) result = message->data.result;
    curl_multi_remove_handle(multi, easy);
    return result;
  }

  CURL* easy = nullptr;
  CURLM* multi = nullptr;
};

Transfers::Transfers() : handles_(std::make_unique<Handles>()) {}
Transfers::~Transfers() = default;

namespace {

void set_limits(CURL* easy, const HttpOptions& options) {
  const auto stall = std::chrono::ceil<std::chrono::seconds>(options.stall_limit);
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options.connect_limit.count()));
  curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, static_cast<long>(options.total_limit.count()));
  curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, static_cast<long>(options.least_speed));
  curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, static_cast<long>(stall.count()));
}

void set_request(CURL* easy, const HttpRequest& request, RequestBody& upload) {
  curl_easy_setopt(easy, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  // A redirect may not lead from https to http.
  curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS_STR, request.url.starts_with("https:") ? "https" : "http,https");
  curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, request.redirects > 0 ? 1L : 0L);
  curl_easy_setopt(easy, CURLOPT_MAXREDIRS, static_cast<long>(request.redirects));
  curl_easy_setopt(easy, CURLOPT_USERAGENT, "libcomposer/" COMPOSER_VERSION);
  if (request.method == "HEAD") {
    curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
    return;
  }
  const bool sends = !std::holds_alternative<std::monostate>(request.body) || request.method == "PUT" ||
                     request.method == "POST";  // these methods have a body, even if it is empty
  if (sends) {
    curl_easy_setopt(easy, CURLOPT_POST, 1L);
    curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(upload.size));
    curl_easy_setopt(easy, CURLOPT_READFUNCTION, &on_read);
    curl_easy_setopt(easy, CURLOPT_READDATA, &upload);
    curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, &on_seek);
    curl_easy_setopt(easy, CURLOPT_SEEKDATA, &upload);
  }
  curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request.method.c_str());
}

}  // namespace

Attempt Transfers::run(const HttpRequest& request, const HttpOptions& options, const std::stop_token& stop) {
  CURL* easy = handles_->easy;
  curl_easy_reset(easy);
  Attempt attempt;
  RequestBody upload(request);
  Download download{easy, attempt.response, request.to_file, options.most_in_memory, nullptr, {}};
  if (!request.to_file.empty())
    download.file = std::make_unique<OpenFile>(request.to_file, O_WRONLY | O_CREAT | O_TRUNC, "written");
  attempt.sent = headers_of(request);
  const List headers = header_lines(attempt.sent);
  std::array<char, CURL_ERROR_SIZE> reason{};

  set_request(easy, request, upload);
  set_limits(easy, options);
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, reason.data());
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &on_write);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, &download);
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, &on_header);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, &download);
  if (const std::string file = certificates(); !file.empty()) curl_easy_setopt(easy, CURLOPT_CAINFO, file.c_str());

  const CURLcode code = handles_->perform(stop, attempt.cancelled);
  long status = 0;
  const char* redirect = nullptr;
  curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
  curl_easy_getinfo(easy, CURLINFO_REDIRECT_URL, &redirect);
  if (redirect != nullptr) attempt.redirect = redirect;
  attempt.response.status = static_cast<int>(status);
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, nullptr);  // the buffer ends its life here
  if (attempt.cancelled || code == CURLE_OK) return attempt;

  if (!download.file_failure.empty())
    throw Error(request.to_file.string(), ": cannot be written: ", download.file_failure);
  if (!upload.failure.empty())
    throw Error(std::get<FilePart>(request.body).path.string(), ": cannot be sent: ", upload.failure);
  attempt.may_pass = transfer_may_pass(code);
  attempt.failure = reason.front() != '\0' ? reason.data() : curl_easy_strerror(code);
  if (download.too_long) attempt.failure = join("the response is longer than ", options.most_in_memory, " bytes");
  if (const std::string what = remedy_of_transfer(code); !what.empty()) attempt.failure += "; " + what;
  return attempt;
}

}  // namespace composer::net
