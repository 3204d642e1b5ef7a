#pragma once
// What the program writes to std::cout, std::cerr and std::clog, line by line. Internal to loggers.
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace composer::loggers {

// While it lives, text that goes to these streams is also collected here. The streams keep their own buffers, which get
// every character at once, so that nothing is lost when the program dies; what C functions and other processes write to
// the same files is not seen. Any number can live at the same time. To be made and destroyed while no other thread
// writes to the streams; otherwise they may be used from any thread.
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

  // The lines since the last call, in the order in which they were completed. `rest`: also what is not ended by a
  // newline yet. Of a line that was written over with '\r', as progress bars do, only its last state.
  std::vector<Line> take(bool rest = false);

 private:
  class Collected;
  std::shared_ptr<Collected> collected_;
};

}  // namespace composer::loggers
