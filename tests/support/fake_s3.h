#pragma once
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/http_server.h"

namespace composer::test {

// A server with one bucket, "b", which answers as S3 does. Signatures are not verified.
class FakeS3 {
 public:
  FakeS3();
  std::string url() const { return server_.url(); }
  std::map<std::string, std::string> objects() const;
  void set(const std::string& key, const std::string& content);
  void erase(const std::string& key);
  std::vector<HttpCall> calls() const { return server_.calls(); }
  std::size_t open_uploads() const;
  // The next upload in parts is joined, but the connection closes without a response.
  void lose_completion();
  // From now on ETags are not the MD5 of contents or of parts, as with SSE-KMS.
  void encrypt();
  // From now on it drops the metadata of objects, as some servers do.
  void drop_marks();
  // Replies in place of the bucket if it returns a reply.
  void intercept(std::function<std::optional<HttpReply>(const HttpCall&)> instead);
  // The objects after each change.
  std::vector<std::map<std::string, std::string>> history() const;

 private:
  HttpReply answer(const HttpCall& call);
  HttpReply list(const std::map<std::string, std::string>& query) const;

  mutable std::mutex mutex_;
  std::map<std::string, std::string> objects_;
  std::vector<std::map<std::string, std::string>> history_;
  struct Upload {
    std::string mark;  // from its beginning to its object
    std::map<int, std::string> parts = {};
  };
  std::string hash(const std::string& content) const;
  std::map<std::string, Upload> uploads_;
  std::map<std::string, std::string> etags_, marks_;  // of objects made of parts
  int next_upload_ = 0;
  bool lose_completion_ = false, encrypts_ = false, drops_marks_ = false;
  std::function<std::optional<HttpReply>(const HttpCall&)> instead_;
  HttpServer server_;  // the last: it calls answer()
};

// Sets environment variables while it lives.
class Variables {
 public:
  explicit Variables(const std::map<std::string, std::string>& values);
  ~Variables();
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

// Those with which s3:// leads to the server.
std::map<std::string, std::string> variables_of(const FakeS3& server);

}  // namespace composer::test
