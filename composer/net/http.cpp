#include "composer/net/http.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <random>
#include <unistd.h>
#include <utility>

#include <curl/curl.h>

#include "composer/net/digest.h"
#include "composer/net/server_message.h"
#include "composer/net/transfer.h"
#include "composer/util/letters.h"
#include "composer/util/random.h"

namespace composer::net {
namespace {

using std::chrono::milliseconds;

void wait(milliseconds pause, const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any never;
  std::unique_lock lock(mutex);
  never.wait_for(lock, stop, pause, [] { return false; });
}

bool may_pass(int status) { return status == 408 || status == 429 || status >= 500; }

bool may_pass(const Attempt& attempt) {
  return attempt.failure.empty() ? may_pass(attempt.response.status) : attempt.may_pass;
}

std::string remedy_of(int status, const std::string& code) {
  if (code == "RequestTimeTooSkewed") return "set the clock of this machine";
  if (status == 401 || status == 403) return "check the credentials and their permissions";
  if (status == 404 || status == 410) return "check the address";
  if (status == 407) return "put the proxy's user and password into https_proxy";
  if (status == 413) return "the server takes no body of this size";
  if (may_pass(status)) return "try again later";
  return {};
}

std::optional<std::time_t> parsed_date(const std::string& text) {
  // curl_getdate() expects English names of months and days.
  const std::time_t date = ::curl_getdate(text.c_str(), nullptr);
  return date < 0 ? std::nullopt : std::optional(date);
}

// Parses a Retry-After, which is a number of seconds or a date.
milliseconds retry_after(const HttpResponse& response) {
  const std::string value = response.header("retry-after");
  long long seconds = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), seconds);
  if (error != std::errc() || end != value.data() + value.size()) {
    const auto date = parsed_date(value);
    if (!date) return {};
    // The date is compared with the server's clock, if the response has a Date.
    const auto now = parsed_date(response.header("date"));
    seconds = static_cast<long long>(*date) - static_cast<long long>(now.value_or(std::time(nullptr)));
  }
  return std::chrono::seconds(std::clamp<long long>(seconds, 0, 86'400));
}

void check(const HttpOptions& options) {
  const RetryPolicy& retry = options.retry;
  if (options.connect_limit.count() <= 0)
    throw ConfigError("HTTP: connect_limit must be above 0, not ", options.connect_limit.count(), " ms");
  if (options.stall_limit.count() < 1000)
    throw ConfigError("HTTP: stall_limit must be at least 1000 ms, not ", options.stall_limit.count());
  if (options.least_speed < 1)
    throw ConfigError("HTTP: least_speed must be at least 1 byte per second, not ", options.least_speed);
  if (options.total_limit.count() < 0)
    throw ConfigError("HTTP: total_limit must not be negative: ", options.total_limit.count(), " ms");
  if (retry.attempts < 1) throw ConfigError("HTTP: attempts must be at least 1, not ", retry.attempts);
  if (retry.first_pause.count() < 0 || retry.longest_pause.count() < 0 || retry.longest_retry_after.count() < 0)
    throw ConfigError("HTTP: the pauses between attempts must not be negative");
}

void check(const HttpRequest& request) {
  if (!request.url.starts_with("http://") && !request.url.starts_with("https://"))
    throw ConfigError(shown_url(request.url), ": is no URL that begins with http:// or https://");
  if (request.url.find_first_of(" \r\n\t") != std::string::npos)
    throw ConfigError(shown_url(request.url), ": contains white space; it must be percent-encoded");
}

bool is_secret(std::string_view text) {
  const std::string name = util::lower(text);
  return std::ranges::any_of(std::array{"auth", "token", "key", "cookie", "sig", "cred", "pass", "secret", "policy"},
                             [&](const char* part) { return name.find(part) != std::string::npos; });
}

// The secrets of a URL: the password alone and with the user (as it is sent), the query, and those values of the query
// that are secret.
std::vector<std::string> secrets_of(const std::string& url) {
  std::vector<std::string> secrets;
  const std::size_t host = url.find("://") + 3, query = std::min(url.find('?'), url.size());
  const std::string authority = url.substr(host, std::min(url.find('/', host), query) - host);
  if (const std::size_t at = authority.rfind('@'); at != std::string::npos) {
    const std::string user = authority.substr(0, at);
    secrets.push_back(user.substr(user.find(':') + 1));  // without a password, the user counts as one
    const std::string sent = percent_decoded(user);
    secrets.push_back(base64(sent.find(':') == std::string::npos ? sent + ':' : sent));
  }
  if (query == url.size()) return secrets;
  secrets.push_back(url.substr(query + 1));
  for (std::size_t begin = query + 1; begin < url.size();) {
    const std::size_t end = std::min(url.find('&', begin), url.size());
    const std::size_t equals = std::min(url.find('=', begin), end);
    if (equals < end && is_secret(url.substr(begin, equals - begin)))
      secrets.push_back(url.substr(equals + 1, end - equals - 1));
    begin = end + 1;
  }
  return secrets;
}

// Removes secrets that a server may repeat in its message.
std::string without_secrets(std::string text, const std::string& url, const std::vector<HttpHeader>& sent) {
  std::vector<std::string> secrets = secrets_of(url);
  for (const HttpHeader& header : sent) {
    if (!is_secret(header.name)) continue;
    secrets.push_back(header.value);
    secrets.push_back(header.value.substr(std::min(header.value.find(' '), header.value.size() - 1) + 1));
  }
  for (const std::string& secret : secrets)
    for (const std::string& hidden : {secret, percent_decoded(secret)})
      for (std::size_t at = 0; hidden.size() > 3 && (at = text.find(hidden, at)) != std::string::npos;)
        text.replace(at, hidden.size(), "***");
  return text;
}

HttpError error_of(const HttpRequest& request, const Attempt& attempt, int tries) {
  const HttpResponse& response = attempt.response;
  const bool answered = attempt.failure.empty();
  ServerMessage said =
      answered ? message_of(without_secrets(response.body, request.url, attempt.sent)) : ServerMessage{};
  std::string text = join(request.method, " ", shown_url(request.url), ": ");
  text += answered ? join("status ", response.status) : attempt.failure;
  if (!said.code.empty()) text += join(" ", said.code);
  if (!said.text.empty()) text += ": " + said.text;
  if (!attempt.redirect.empty()) text += "; the server redirects to " + shown_url(attempt.redirect);
  if (const std::string what = answered ? remedy_of(response.status, said.code) : std::string(); !what.empty())
    text += "; " + what;
  if (tries > 1) text += join(" (after ", tries, " attempts)");
  HttpError error(without_secrets(std::move(text), request.url, attempt.sent), answered ? response.status : 0,
                  std::move(said.code), may_pass(attempt));
  error.region = said.region.empty() ? response.header("x-amz-bucket-region") : said.region;
  return error;
}

}  // namespace

HttpError::~HttpError() = default;
Cancelled::~Cancelled() = default;

std::string HttpResponse::header(std::string_view lower_case_name) const {
  const auto found = headers.find(lower_case_name);
  return found == headers.end() ? std::string() : found->second;
}

class HttpClient::Impl {
 public:
  explicit Impl(HttpOptions options) : options_(std::move(options)), random_(std::random_device()()) {
    check(options_);
    if (!options_.sleep) options_.sleep = wait;
  }

  HttpResponse send(const HttpRequest& request, const std::stop_token& stop) {
    check(request);
    const int attempts = request.repeat ? options_.retry.attempts : 1;
    for (int tries = 1;; ++tries) {
      Attempt attempt = transfers_.run(request, options_, stop);
      if (const auto date = parsed_date(attempt.response.header("date"))) {
        date_ = std::chrono::system_clock::from_time_t(*date);
        date_received_ = std::chrono::steady_clock::now();
      }
      if (!attempt.cancelled && attempt.failure.empty() && attempt.response.status >= 200 &&
          attempt.response.status < 300)
        return std::move(attempt.response);
      if (!attempt.cancelled) {
        if (tries == attempts || !may_pass(attempt)) throw error_of(request, attempt, tries);
        options_.sleep(pause(tries, attempt), stop);
      }
      if (stop.stop_requested()) throw Cancelled(request.method, " ", shown_url(request.url), ": was cancelled");
    }
  }

  std::optional<std::chrono::system_clock::time_point> server_time() const {
    using std::chrono::system_clock;
    if (!date_) return {};
    return *date_ +
           std::chrono::duration_cast<system_clock::duration>(std::chrono::steady_clock::now() - date_received_);
  }

 private:
  milliseconds pause(int tries, const Attempt& attempt) {
    const RetryPolicy& retry = options_.retry;
    milliseconds upper = std::min(retry.first_pause, retry.longest_pause);
    for (int i = 1; i < tries && upper < retry.longest_pause; ++i) upper = std::min(upper * 2, retry.longest_pause);
    const auto drawn =
        milliseconds(static_cast<long>((0.5 + 0.5 * random_.uniform()) * static_cast<double>(upper.count())));
    return std::max(drawn, std::min(retry_after(attempt.response), retry.longest_retry_after));
  }

  HttpOptions options_;
  Transfers transfers_;
  RandomStream random_;
  std::optional<std::chrono::system_clock::time_point> date_;  // Date of the last response that has one
  std::chrono::steady_clock::time_point date_received_;        // when that response arrived
};

HttpClient::HttpClient(HttpOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
HttpClient::~HttpClient() = default;
HttpClient::HttpClient(HttpClient&&) noexcept = default;
HttpClient& HttpClient::operator=(HttpClient&&) noexcept = default;

HttpResponse HttpClient::send(const HttpRequest& request, const std::stop_token& stop) {
  return impl_->send(request, stop);
}

std::optional<std::chrono::system_clock::time_point> HttpClient::server_time() const { return impl_->server_time(); }

std::string shown_url(std::string_view url) {
  const std::size_t scheme = url.find("://");
  const std::size_t host = scheme == std::string::npos ? 0 : scheme + 3;
  // If a password contains "/", "?" or "#" unencoded, the text after its colon would look like a port.
  const std::string_view before_path = url.substr(host, url.find_first_of("/?#", host) - host);
  const std::size_t colon = before_path.find(':');
  const bool has_port = before_path.starts_with('[') || colon == std::string_view::npos ||
                        before_path.find_first_not_of("0123456789", colon + 1) == std::string_view::npos;
  if (const std::size_t at = url.rfind('@'); !has_port && before_path.find('@') == std::string_view::npos)
    return std::string(url.substr(0, host)) + (at == std::string_view::npos ? "***" : shown_url(url.substr(at + 1)));
  url = url.substr(0, url.find_first_of("?#"));
  const std::size_t path = std::min(url.find('/', host), url.size());
  const std::size_t user = url.substr(0, path).rfind('@');
  std::string shown(url.substr(0, host));
  return shown.append(url.substr(user != std::string::npos && user >= host ? user + 1 : host));
}

std::string percent_encoded(std::string_view text, bool keep_slashes) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string encoded;
  for (const unsigned char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                       c == '_' || c == '.' || c == '~' || (c == '/' && keep_slashes);
    if (plain)
      encoded += static_cast<char>(c);
    else
      encoded.append({'%', kDigits[c >> 4], kDigits[c & 15]});
  }
  return encoded;
}

std::string percent_decoded(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    const char* digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() && std::from_chars(digits, digits + 2, value, 16).ptr == digits + 2) {
      decoded += static_cast<char>(value);
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

}  // namespace composer::net
