#pragma once
// A server for loggers in a separate process, so that its work is not counted as theirs.
#include <array>
#include <stdexcept>
#include <string>
#include <unistd.h>

#include <sys/types.h>
#include <sys/wait.h>

#include "tests/support/http_server.h"

namespace composer::bench {

// Answers like MLflow and Slack.
inline test::HttpReply answer_of_service(const test::HttpCall& call) {
  const auto is = [&](const char* part) { return call.target.find(part) != std::string::npos; };
  if (is("experiments/get-by-name")) return {200, R"({"experiment":{"experiment_id":"1","lifecycle_stage":"active"}})"};
  if (is("runs/create"))
    return {200, R"({"run":{"info":{"run_id":"r1","experiment_id":"1","artifact_uri":"mlflow-artifacts:/1/r"}}})"};
  return {200, is("slack") ? "ok" : "{}"};
}

// Create it before there are other threads: a process with several threads should not be forked.
class ServerProcess {
 public:
  ServerProcess() {
    std::array<int, 2> url{}, end{};
    if (::pipe(url.data()) != 0 || ::pipe(end.data()) != 0) throw std::runtime_error("no pipe for the server");
    child_ = ::fork();
    if (child_ < 0) throw std::runtime_error("no process for the server");
    if (child_ == 0) {
      ::close(end[1]);
      serve(url[1], end[0]);
    }
    ::close(url[1]);
    ::close(end[0]);
    end_ = end[1];
    for (char c = 0; ::read(url[0], &c, 1) == 1;) url_ += c;
    ::close(url[0]);
  }
  ~ServerProcess() {
    ::close(end_);
    ::waitpid(child_, nullptr, 0);
  }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  const std::string& url() const { return url_; }

 private:
  // Serves until the other process closes its end of the pipe.
  [[noreturn]] static void serve(int to, int until) {
    const test::HttpServer server(answer_of_service);
    const std::string url = server.url();
    bool lives = ::write(to, url.data(), url.size()) == static_cast<ssize_t>(url.size());
    ::close(to);
    for (char c = 0; lives;) lives = ::read(until, &c, 1) > 0;
    ::_exit(0);
  }

  std::string url_;
  pid_t child_ = -1;
  int end_ = -1;
};

}  // namespace composer::bench
