#include "composer/loggers/output_capture.h"

#include <array>
#include <cstddef>
#include <functional>
#include <iostream>
#include <mutex>
#include <streambuf>
#include <string_view>

namespace composer::loggers {

class OutputCapture::Collected {
 public:
  Collected(bool out, bool err) : parts_({Part{"stdout", out, {}}, Part{"stderr", err, {}}}) {}

  void add(std::size_t stream, std::string_view text) {
    const std::lock_guard lock(mutex_);
    Part& part = parts_.at(stream);
    if (!part.wanted) return;
    for (std::size_t end = 0; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1)) {
      part.rest += text.substr(0, end);
      finish(part);
    }
    part.rest += text;
  }

  std::vector<Line> take(bool rest) {
    const std::lock_guard lock(mutex_);
    if (rest)
      for (Part& part : parts_)
        if (!part.rest.empty()) finish(part);
    return std::exchange(lines_, {});
  }

 private:
  struct Part {
    const char* name;
    bool wanted;
    std::string rest;  // the beginning of a line that is not complete
  };

  void finish(Part& part) {
    while (part.rest.ends_with('\r')) part.rest.pop_back();
    if (const std::size_t over = part.rest.rfind('\r'); over != std::string::npos) part.rest.erase(0, over + 1);
    lines_.push_back({part.name, std::exchange(part.rest, {})});
  }

  std::mutex mutex_;
  std::array<Part, 2> parts_;
  std::vector<Line> lines_;
};

namespace {

// Passes all text on, and also to its listeners.
class Tee final : public std::streambuf {
 public:
  Tee(std::ostream& stream, std::size_t number) : stream_(stream), number_(number) {}

  template <class Listener>
  void add(const std::shared_ptr<Listener>& listener) {
    const std::lock_guard lock(mutex_);
    if (listeners_.empty() && stream_.rdbuf() != this) own_ = stream_.rdbuf(this);
    listeners_.push_back(
        {listener.get(), [raw = listener.get(), number = number_](std::string_view text) { raw->add(number, text); }});
  }
  // If another buffer was put over this one, this one stays below it and only passes text on.
  void remove(const void* listener) {
    const std::lock_guard lock(mutex_);
    std::erase_if(listeners_, [&](const auto& one) { return one.first == listener; });
    if (listeners_.empty() && stream_.rdbuf() == this) stream_.rdbuf(own_);
  }

 private:
  int_type overflow(int_type c) override {
    if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
    const char text = traits_type::to_char_type(c);
    tell({&text, 1});
    return own_->sputc(text);
  }
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    tell({text, static_cast<std::size_t>(size)});
    return own_->sputn(text, size);
  }
  int sync() override { return own_->pubsync(); }

  void tell(std::string_view text) {
    const std::lock_guard lock(mutex_);
    for (const auto& [listener, hear] : listeners_) hear(text);
  }

  std::ostream& stream_;
  const std::size_t number_;
  std::streambuf* own_ = nullptr;
  std::mutex mutex_;
  std::vector<std::pair<const void*, std::function<void(std::string_view)>>> listeners_;
};

// Never destroyed, because the streams are never destroyed either.
std::array<Tee*, 3>& tees() {
  static std::array<Tee*, 3> all = {new Tee(std::cout, 0), new Tee(std::cerr, 1), new Tee(std::clog, 1)};
  return all;
}

}  // namespace

OutputCapture::OutputCapture(bool out, bool err) : collected_(std::make_shared<Collected>(out, err)) {
  const auto& [cout, cerr, clog] = tees();
  if (out) cout->add(collected_);
  if (err) cerr->add(collected_), clog->add(collected_);
}

OutputCapture::~OutputCapture() {
  for (Tee* tee : tees()) tee->remove(collected_.get());
}

std::vector<OutputCapture::Line> OutputCapture::take(bool rest) { return collected_->take(rest); }

}  // namespace composer::loggers
