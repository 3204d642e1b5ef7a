#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace composer::test {

struct HttpCall {
  std::string method, target, body;            // the target as it was sent, with its query
  std::map<std::string, std::string> headers;  // names in lower case
};

struct HttpReply {
  enum class Fault : std::uint8_t {
    NONE,
    CLOSE,      // closes the connection without a response
    HANG,       // reads the request, then sends nothing until the client or the server ends
    CUT,        // sends half of the body and closes
    HANG_HALF,  // sends half of the body, then nothing
    GARBAGE,    // sends no HTTP
    SLOW,       // sends one byte at a time
    DRIP,       // sends the body, then one more byte every 20 ms, until the client or the server ends
  };
  int status = 200;
  std::string body = {};
  std::vector<std::string> headers = {};  // lines without their end
  Fault fault = Fault::NONE;
};

// An HTTP server on 127.0.0.1, which answers one connection after another on its own thread.
class HttpServer {
 public:
  using Handler = std::function<HttpReply(const HttpCall&)>;  // called by the server's thread
  explicit HttpServer(Handler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::string url() const;  // http://127.0.0.1:PORT
  std::vector<HttpCall> calls() const;
  // Called by the server's thread when it begins to hang. Set before the first request.
  std::function<void()> on_hang = [] {};

 private:
  void run();
  void serve(int connection);
  bool wait_for(int connection, short events) const;  // false: the server ends
  bool send(int connection, const std::string& text, bool slowly) const;
  void drip(int connection) const;
  Handler handler_;
  int listener_ = -1, wake_[2] = {-1, -1}, port_ = 0;
  mutable std::mutex mutex_;
  std::vector<HttpCall> calls_;
  std::thread thread_;
};

// An address where nothing listens.
std::string refusing_url();

}  // namespace composer::test
