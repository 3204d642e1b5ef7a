#pragma once
// One request over libcurl, without retries.
#include <chrono>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>

#include "composer/net/http.h"

namespace composer::net {

struct Attempt {
  std::vector<HttpHeader> sent;  // the headers of the request
  HttpResponse response;
  std::string failure;  // why there is no complete response; empty: there is one
  bool may_pass = false;
  bool cancelled = false;
  std::string redirect;  // the target of a redirect that was not followed
};

class Transfers {
 public:
  Transfers();
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  // Throws Error if a file cannot be read or written.
  Attempt run(const HttpRequest& request, const HttpOptions& options, const std::stop_token& stop);

 private:
  struct Handles;
  std::unique_ptr<Handles> handles_;
};

}  // namespace composer::net
