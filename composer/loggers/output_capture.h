#pragma once
// Captures what the program writes to std::cout, std::cerr and std::clog, line by line. Internal to loggers.
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace composer::loggers {

// While it lives, text written to these streams is also collected here. The streams keep their own buffers, which get
// every character at once, so that nothing is lost if the program crashes. Output of C functions and of other processes
// to the same files is not captured. Several objects can live at the same time. Create and destroy them while no other
// thread writes to the streams; otherwise they may be used from any thread.
class OutputCapture {
 public:
  struct Line {
    const char* stream;  // "stdout" or "stderr"; std::clog is stderr
    std::string text;
  };

  OutputCapture(bool out, bool err);
  ~OutputCapture();
  OutputCapture(const OutputCapture&) = delete;
  OutputCapture& operator=(const OutputCapture&) = delete;

  // The lines since the last call, in the order in which they were completed. `rest`: also includes text that no
  // newline has ended yet. If a line was overwritten with '\r', as by progress bars, only its last state is returned.
  std::vector<Line> take(bool rest = false);

 private:
  class Collected;
  std::shared_ptr<Collected> collected_;
};

}  // namespace composer::loggers
