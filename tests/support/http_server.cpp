#include "tests/support/http_server.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <poll.h>
#include <stdexcept>
#include <tuple>
#include <unistd.h>
#include <utility>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace composer::test {
namespace {

// A socket bound to a free port of 127.0.0.1.
std::pair<int, int> bound() {
  ::setenv("no_proxy", "127.0.0.1", 1);  // whatever proxy the machine has
  const int number = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (number < 0 || ::bind(number, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::getsockname(number, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    throw std::runtime_error("no socket for the test's server");
  return {number, ::ntohs(address.sin_port)};
}

std::string date() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  std::array<char, 64> text{};
  ::gmtime_r(&now, &utc);
  return {text.data(), std::strftime(text.data(), text.size(), "%a, %d %b %Y %H:%M:%S GMT", &utc)};
}

// The request at the beginning of `text`; nullopt: it is not whole.
std::optional<HttpCall> parsed_call(const std::string& text) {
  const std::size_t end = text.find("\r\n\r\n");
  if (end == text.npos) return {};
  HttpCall call;
  const std::size_t first = text.find(' '), second = text.find(' ', first + 1);
  call.method = text.substr(0, first);
  call.target = text.substr(first + 1, second - first - 1);
  for (std::size_t at = text.find("\r\n") + 2; at < end;) {
    const std::size_t line = text.find("\r\n", at), colon = text.find(':', at);
    std::string name = text.substr(at, colon - at);
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const std::size_t value = std::min(text.find_first_not_of(' ', colon + 1), line);
    call.headers[name] = text.substr(value, line - value);
    at = line + 2;
  }
  const auto length = call.headers.find("content-length");
  const std::size_t size = length == call.headers.end() ? 0 : std::strtoull(length->second.c_str(), nullptr, 10);
  if (text.size() - end - 4 < size) return {};
  call.body = text.substr(end + 4, size);
  return call;
}

}  // namespace

HttpServer::HttpServer(Handler handler) : handler_(std::move(handler)) {
  std::tie(listener_, port_) = bound();
  if (::listen(listener_, 16) != 0 || ::pipe(wake_) != 0) throw std::runtime_error("no socket for the test's server");
  thread_ = std::thread([this] { run(); });
}

HttpServer::~HttpServer() {
  ::close(wake_[1]);
  thread_.join();
  ::close(wake_[0]);
  ::close(listener_);
}

std::string HttpServer::url() const { return "http://127.0.0.1:" + std::to_string(port_); }

std::vector<HttpCall> HttpServer::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

void HttpServer::run() {
  while (wait_for(listener_, POLLIN)) {
    const int connection = ::accept(listener_, nullptr, nullptr);
    if (connection < 0) continue;
    serve(connection);
    ::close(connection);
  }
}

bool HttpServer::wait_for(int connection, short events) const {
  std::array<pollfd, 2> sockets{pollfd{connection, events, 0}, pollfd{wake_[0], POLLIN, 0}};
  while (::poll(sockets.data(), sockets.size(), -1) < 0) {
  }
  return sockets[1].revents == 0;
}

bool HttpServer::send(int connection, const std::string& text, bool slowly) const {
  for (std::size_t done = 0; done < text.size();) {
    if (!wait_for(connection, POLLOUT)) return false;
    const std::size_t size = slowly ? 1 : text.size() - done;
    const ssize_t sent = ::send(connection, text.data() + done, size, MSG_NOSIGNAL);
    if (sent < 0) return false;
    done += static_cast<std::size_t>(sent);
  }
  return true;
}

void HttpServer::drip(int connection) const {
  while (send(connection, "x", false)) {
    pollfd end{wake_[0], POLLIN, 0};
    if (::poll(&end, 1, 20) > 0) return;
  }
}

void HttpServer::serve(int connection) {
  using enum HttpReply::Fault;
  std::string text;
  std::optional<HttpCall> call;
  while (!(call = parsed_call(text))) {
    std::array<char, 65536> piece;
    if (!wait_for(connection, POLLIN)) return;
    const ssize_t size = ::recv(connection, piece.data(), piece.size(), 0);
    if (size <= 0) return;
    text.append(piece.data(), static_cast<std::size_t>(size));
  }
  {
    const std::lock_guard lock(mutex_);
    calls_.push_back(*call);
  }
  const HttpReply reply = handler_(*call);
  if (reply.fault == CLOSE) return;
  if (reply.fault == GARBAGE) {
    send(connection, "what?\r\n\r\n", false);
    return;
  }
  std::string answer = "HTTP/1.1 " + std::to_string(reply.status) + " Words\r\nConnection: close\r\n";
  const bool has_length =
      std::ranges::any_of(reply.headers, [](const std::string& line) { return line.starts_with("Content-Length"); });
  if (!has_length && reply.status != 204 && reply.fault != DRIP)
    answer += "Content-Length: " + std::to_string(reply.body.size()) + "\r\n";
  const auto is_date = [](const std::string& line) { return line.starts_with("Date: "); };
  if (std::ranges::none_of(reply.headers, is_date)) answer += "Date: " + date() + "\r\n";
  for (const std::string& line : reply.headers) answer += line + "\r\n";
  answer += "\r\n";
  if (call->method != "HEAD") {
    const bool half = reply.fault == CUT || reply.fault == HANG_HALF;
    answer += reply.body.substr(0, half ? reply.body.size() / 2 : reply.body.npos);
  }
  if (reply.fault == HANG) answer.clear();
  const bool sent = send(connection, answer, reply.fault == SLOW);
  if (sent && reply.fault == DRIP) return drip(connection);
  if (!sent || (reply.fault != HANG && reply.fault != HANG_HALF)) {
    ::shutdown(connection, SHUT_WR);
    return;
  }
  on_hang();
  wait_for(connection, POLLIN);  // until one of both ends
}

std::string refusing_url() {
  const auto [number, port] = bound();
  ::close(number);
  return "http://127.0.0.1:" + std::to_string(port);
}

}  // namespace composer::test
