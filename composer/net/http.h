#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "composer/core/error.h"
#include "composer/core/export.h"

namespace composer::net {

struct HttpHeader {
  std::string name, value;
};

// A part of a file that is sent as the body of a request.
struct FilePart {
  std::filesystem::path path;
  std::uint64_t offset = 0;                // bytes
  std::optional<std::uint64_t> size = {};  // bytes; unset: up to the end of the file
};

struct HttpRequest {
  std::string method = "GET";
  std::string url;  // http:// or https://, percent-encoded
  std::vector<HttpHeader> headers = {};
  std::variant<std::monostate, std::string, FilePart> body = {};
  // The file that receives the body of a successful response; replaced if it exists. Empty: HttpResponse::body. After
  // an error the file may contain a part of the body.
  std::filesystem::path to_file = {};
  int redirects = 0;   // largest number of redirects to follow; their targets get all headers except Authorization
  bool repeat = true;  // false: send once and never retry; for requests that must not arrive twice
  // Called before each attempt. Returns headers that depend on the time, such as signatures.
  std::function<std::vector<HttpHeader>()> more_headers = {};
};

struct COMPOSER_EXPORT HttpResponse {
  int status = 0;
  std::map<std::string, std::string, std::less<>> headers;  // names in lower case; the last value of a repeated header
  std::string body;

  std::string header(std::string_view lower_case_name) const;  // empty: missing
};

// A request failed: there was no response, or one with a status of 300 or more. The text contains the method, the URL
// without user, password and query, the server's message and a remedy.
struct COMPOSER_EXPORT HttpError : Error {
  HttpError(const std::string& text, int http_status, std::string name, bool temporary)
      : Error(text), status(http_status), code(std::move(name)), may_pass(temporary) {}
  HttpError(const HttpError&) = default;
  HttpError& operator=(const HttpError&) = default;
  ~HttpError() override;

  int status;               // 0: no response
  std::string code;         // name of the error in the server's XML or JSON, such as NoSuchKey; empty: none
  bool may_pass;            // the cause may be temporary: a transport error, 408, 429 or 5xx
  std::string region = {};  // S3 only: the region of the bucket, if the request was signed for another region
};

// A request was cancelled.
struct COMPOSER_EXPORT Cancelled : Error {
  using Error::Error;
  Cancelled(const Cancelled&) = default;
  Cancelled& operator=(const Cancelled&) = default;
  ~Cancelled() override;
};

// How failed requests are retried after transport errors and the statuses 408, 429 and 5xx. The n-th pause is drawn
// from the upper half of [0, first_pause * 2^(n-1)], and is at most `longest_pause`. If the server's Retry-After is
// longer, it is used, up to `longest_retry_after`.
struct RetryPolicy {
  int attempts = 5;  // >= 1
  std::chrono::milliseconds first_pause{500};
  std::chrono::milliseconds longest_pause{30'000};
  std::chrono::milliseconds longest_retry_after{300'000};
};

// Waits; returns early once a stop is requested.
using Sleep = std::function<void(std::chrono::milliseconds, const std::stop_token&)>;

struct HttpOptions {
  std::chrono::milliseconds connect_limit{10'000};  // milliseconds, > 0; time to connect
  std::chrono::milliseconds stall_limit{60'000};    // milliseconds, >= 1000; longest time below least_speed
  std::int64_t least_speed = 1024;                  // >= 1; bytes per second, sum of both directions
  std::chrono::milliseconds total_limit{0};         // milliseconds; longest time of one attempt; 0: unlimited
  std::uint64_t most_in_memory = 256 << 20;         // bytes; a longer body is an error, unless it is written to a file
  RetryPolicy retry = {};                           // attempts and pauses
  Sleep sleep = {};                                 // replaces the waiting between attempts; for tests
};

// An HTTP client that keeps its connections open. TLS certificates are verified against the system's authorities, or
// those in the file that CURL_CA_BUNDLE or SSL_CERT_FILE names. Proxies are taken from http_proxy, https_proxy,
// all_proxy and no_proxy. Use it from one thread at a time; any thread can cancel a request through its stop token.
class COMPOSER_EXPORT HttpClient {
 public:
  explicit HttpClient(HttpOptions options = {});  // throws ConfigError for options out of range
  ~HttpClient();
  HttpClient(HttpClient&&) noexcept;
  HttpClient& operator=(HttpClient&&) noexcept;

  // Returns a response with a status from 200 to 299. Throws HttpError; Cancelled once a stop is requested; ConfigError
  // for a URL that is not HTTP or HTTPS; Error for a file that cannot be read or written.
  HttpResponse send(const HttpRequest& request, const std::stop_token& stop = {});
  // The present time by the clock of the server that answered last, to the second: the Date of its response plus the
  // time passed since. nullopt: no response had a Date.
  std::optional<std::chrono::system_clock::time_point> server_time() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The URL as messages show it: without user, password, query and fragment.
COMPOSER_EXPORT std::string shown_url(std::string_view url);

// Percent-encodes everything but letters, digits and "-_.~", and "/" if `keep_slashes`.
COMPOSER_EXPORT std::string percent_encoded(std::string_view text, bool keep_slashes = false);
COMPOSER_EXPORT std::string percent_decoded(std::string_view text);  // "+" is not decoded

}  // namespace composer::net
