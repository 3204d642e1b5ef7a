#include "composer/net/aws.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include "composer/core/error.h"
#include "composer/net/digest.h"
#include "composer/net/trimmed.h"

namespace composer::net {
namespace {

// The settings of a section of an .ini file; empty if the file or the section is missing.
std::map<std::string, std::string> section_of(const std::string& file, const std::string& section) {
  std::map<std::string, std::string> settings;
  std::ifstream stream(file);
  bool inside = false;
  for (std::string line; std::getline(stream, line);) {
    const std::string_view text = trimmed(line);
    const std::size_t equals = text.find('=');
    if (text.starts_with('[') && text.ends_with(']'))
      inside = trimmed(text.substr(1, text.size() - 2)) == section;
    else if (inside && equals != std::string::npos && !text.starts_with('#') && !text.starts_with(';'))
      settings[std::string(trimmed(text.substr(0, equals)))] = trimmed(text.substr(equals + 1));
  }
  return settings;
}

std::string file_of(const Environment& variable, const char* name, const char* file) {
  if (std::string given = variable(name); !given.empty()) return given;
  return variable("HOME") + "/.aws/" + file;
}

std::string profile_of(const Environment& variable) {
  const std::string profile = variable("AWS_PROFILE");
  return profile.empty() ? "default" : profile;
}

std::string time_text(std::time_t now, const char* format) {
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), format, &utc)};
}

}  // namespace

AwsKeys find_keys(const Environment& variable) {
  AwsKeys keys{variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"), variable("AWS_SESSION_TOKEN")};
  if (!keys.id.empty() && !keys.secret.empty()) return keys;
  if (keys.id.empty() != keys.secret.empty())
    throw ConfigError("s3: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY must both be set; ",
                      keys.id.empty() ? "the first" : "the second", " is missing");
  const std::string file = file_of(variable, "AWS_SHARED_CREDENTIALS_FILE", "credentials");
  const std::string profile = profile_of(variable);
  const auto settings = section_of(file, profile);
  const auto setting = [&](const char* name) {
    const auto found = settings.find(name);
    return found == settings.end() ? std::string() : found->second;
  };
  keys = {setting("aws_access_key_id"), setting("aws_secret_access_key"), setting("aws_session_token")};
  if (!keys.id.empty() && !keys.secret.empty()) return keys;
  throw ConfigError("s3: there are no credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set, and ", file,
                    " has no keys of the profile ", profile, "; set one of the two");
}

std::string find_region(const Environment& variable) {
  for (const char* name : {"AWS_REGION", "AWS_DEFAULT_REGION"})
    if (std::string region = variable(name); !region.empty()) return region;
  const std::string profile = profile_of(variable);
  const auto settings =
      section_of(file_of(variable, "AWS_CONFIG_FILE", "config"), profile == "default" ? profile : "profile " + profile);
  const auto found = settings.find("region");
  return found == settings.end() || found->second.empty() ? "us-east-1" : found->second;
}

std::string find_endpoint(const Environment& variable) {
  for (const char* name : {"S3_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}) {
    std::string url = variable(name);
    if (url.empty()) continue;
    while (url.ends_with('/')) url.pop_back();
    if (url.starts_with("http://") || url.starts_with("https://")) return url;
    throw ConfigError(name, ": must begin with http:// or https://, got ", shown_url(url));
  }
  return {};
}

std::string query_text(std::vector<std::pair<std::string, std::string>> query) {
  for (auto& [name, value] : query) name = percent_encoded(name), value = percent_encoded(value);
  std::ranges::sort(query);
  std::string text;
  for (const auto& [name, value] : query) {
    if (!text.empty()) text += '&';
    text.append(name).append("=").append(value);
  }
  return text;
}

std::vector<HttpHeader> signature(const AwsRequest& request, const AwsKeys& keys, const std::string& region,
                                  std::time_t now, const std::map<std::string, std::string>& more) {
  const std::string day = time_text(now, "%Y%m%d"), time = time_text(now, "%Y%m%dT%H%M%SZ");
  std::map<std::string, std::string> headers = more;
  headers["host"] = request.host;
  headers["x-amz-content-sha256"] = request.body_sha256;
  headers["x-amz-date"] = time;
  if (!keys.token.empty()) headers["x-amz-security-token"] = keys.token;
  std::string lines, names;
  for (const auto& [name, value] : headers) {
    lines.append(name).append(":").append(value).append("\n");
    names.append(names.empty() ? "" : ";").append(name);
  }
  const std::string canonical = request.method + "\n" + request.path + "\n" + query_text(request.query) + "\n" + lines +
                                "\n" + names + "\n" + request.body_sha256;
  const std::string scope = day + "/" + region + "/s3/aws4_request";
  const std::string to_sign = "AWS4-HMAC-SHA256\n" + time + "\n" + scope + "\n" + sha256(canonical);
  std::string key = "AWS4" + keys.secret;
  for (const std::string& part : {day, region, std::string("s3"), std::string("aws4_request")})
    key = hmac_sha256(key, part);
  std::vector<HttpHeader> signing;
  for (const auto& [name, value] : headers)
    if (name.starts_with("x-amz-") && !more.contains(name)) signing.push_back({name, value});
  signing.push_back({"Authorization", "AWS4-HMAC-SHA256 Credential=" + keys.id + "/" + scope + ",SignedHeaders=" +
                                          names + ",Signature=" + hexadecimal(hmac_sha256(key, to_sign))});
  return signing;
}

std::string host_header(std::string_view scheme, std::string_view host) {
  const std::string_view port = scheme == "https://" ? ":443" : ":80";
  if (host.ends_with(port)) host.remove_suffix(port.size());
  return std::string(host);
}

}  // namespace composer::net
