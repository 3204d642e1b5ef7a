#pragma once
// Credentials of AWS, and Signature Version 4.
#include <ctime>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "composer/net/http.h"

namespace composer::net {

struct AwsKeys {
  std::string id, secret, token;  // token: empty unless the keys are temporary
  bool operator==(const AwsKeys&) const = default;
};

// Returns the value of an environment variable; empty if it is unset.
using Environment = std::function<std::string(const char* name)>;

// The keys in the environment, or in a profile of AWS_SHARED_CREDENTIALS_FILE or ~/.aws/credentials. Throws ConfigError
// if there are none.
AwsKeys find_keys(const Environment& variable);
std::string find_region(const Environment& variable);    // "us-east-1" if none is set
std::string find_endpoint(const Environment& variable);  // without a trailing "/"; empty: AWS

struct AwsRequest {
  std::string method, host;
  std::string path;                                        // percent-encoded
  std::vector<std::pair<std::string, std::string>> query;  // names and values, not encoded
  std::string body_sha256;
};

// The query, percent-encoded and sorted, as it is signed.
std::string query_text(std::vector<std::pair<std::string, std::string>> query);

// The headers that sign a request to S3 at the given time: x-amz-content-sha256, x-amz-date, x-amz-security-token and
// Authorization. `more` are further headers to sign, with names in lower case.
std::vector<HttpHeader> signature(const AwsRequest& request, const AwsKeys& keys, const std::string& region,
                                  std::time_t now, const std::map<std::string, std::string>& more = {});

// The Host header, as it is sent and signed: without the port if it is the default of the scheme, "http://" or
// "https://".
std::string host_header(std::string_view scheme, std::string_view host);

}  // namespace composer::net
