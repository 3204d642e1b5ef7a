// Runs random programs until one fails, and shrinks that. Each chunk of programs, and each attempt to shrink one, is
// run by a copy of this process, which may crash or hang.
#include <array>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <set>
#include <stdlib.h>
#include <unistd.h>

#include <sys/mman.h>
#include <sys/wait.h>

#include "composer/core/error.h"
#include "tests/property/run.h"
#include "tests/property/shrink.h"
#include "tests/support/folder.h"

namespace composer::property {
namespace {

constexpr unsigned kSecondsEach = 20;  // after which a program hangs
constexpr std::uint64_t kChunk = 500;  // programs of a process
constexpr int kShrunkOfAKind = 20;     // with --keep-going: the others are only counted

constexpr const char* kUsage =
    "usage: composer_property [PROGRAMS] [--seed N] [--first N] [--style quick|kills|threads] [--keep-going]\n"
    "       composer_property --run \"PROGRAM\"";

struct Options {
  std::uint64_t programs = 500, seed = 1, first = 0;
  Style style = Style::QUICK;
  bool keep_going = false;
  std::string text;
};

// What a process tells the one that has started it.
struct Report {
  std::uint64_t number = 0;
  bool failed = false;
  std::array<char, 64> rule{};
  std::array<char, 2000> text{};
};

class Shared {
 public:
  Shared()
      : report_(static_cast<Report*>(
            mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    if (report_ == MAP_FAILED) throw std::runtime_error("no memory to share");
  }
  ~Shared() { munmap(report_, sizeof(Report)); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  Report& operator*() { return *report_; }
  Report* operator->() { return report_; }

 private:
  Report* report_;
};

template <std::size_t N>
void put(std::array<char, N>& into, const std::string& text) {
  std::snprintf(into.data(), N, "%s", text.c_str());
}

std::optional<Failure> run_as(Style style, const Program& program, const Program& other) {
  return style == Style::IN_THREADS ? run_in_threads(program, other) : run(program);
}

// Runs `work` in a copy of this process. Crashes and hangs are failures, too.
std::optional<Failure> elsewhere(Shared& shared, const std::function<std::optional<Failure>()>& work) {
  shared->failed = false;
  std::cout.flush();
  const pid_t child = fork();
  if (child == 0) {
    alarm(kSecondsEach);
    const auto failure = work();
    if (failure) {
      shared->failed = true;
      put(shared->rule, failure->rule);
      put(shared->text, failure->text);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) return Failure{"hang", "it goes on for ever"};
  if (WIFSIGNALED(status)) return Failure{"crash", join("ended by ", strsignal(WTERMSIG(status)))};
  if (!shared->failed) return std::nullopt;
  return Failure{shared->rule.data(), shared->text.data()};
}

std::string without_digits(std::string text) {
  std::erase_if(text, [](char c) { return c >= '0' && c <= '9'; });
  return text;
}

// The rule and how its text begins, without numbers and which trainer it was.
std::string kind_of(const Failure& failure) {
  std::string text = failure.text;
  for (const char* const prefix : {"operation ", "at the end: "})
    if (text.starts_with(prefix)) text = text.substr(text.find(": ") + 2);
  if (text.starts_with("a: ") || text.starts_with("b: ")) text = text.substr(3);
  const bool nan = text.find(" nan") != std::string::npos;
  return join(failure.rule, ": ", without_digits(text).substr(0, 60), nan ? " (nan)" : "");
}

class Search {
 public:
  explicit Search(Options options) : options_(std::move(options)) {}

  int operator()() {
    const std::uint64_t end = options_.first + options_.programs;
    for (std::uint64_t next = options_.first; next < end;) {
      const auto failure = elsewhere(shared_, [&] { return chunk(next, std::min(end, next + kChunk)); });
      if (!failure) {
        next = std::min(end, next + kChunk);
        continue;
      }
      tell(shared_->number, *failure);
      next = shared_->number + 1;
      if (!options_.keep_going) break;
    }
    for (const auto& [kind, count] : kinds_) std::cout << count << " x " << kind << '\n';
    if (kinds_.empty()) std::cout << options_.programs << " programs, seed " << options_.seed << ": all rules held\n";
    return kinds_.empty() ? 0 : 1;
  }

 private:
  Program program(std::uint64_t number) const { return generate(options_.seed, number, options_.style); }

  std::optional<Failure> chunk(std::uint64_t from, std::uint64_t to) {
    for (std::uint64_t number = from; number < to; ++number) {
      shared_->number = number;
      alarm(kSecondsEach);
      if (auto failure = run_as(options_.style, program(number), program(number + options_.programs))) return failure;
    }
    return std::nullopt;
  }

  void tell(std::uint64_t number, const Failure& failure) {
    if (++kinds_[kind_of(failure)] > kShrunkOfAKind) return;
    const Program found = program(number), other = program(number + options_.programs);
    Failure last = failure;
    const Program shortest = shrink(found, [&](const Program& candidate) {
      const auto again = elsewhere(shared_, [&] { return run_as(options_.style, candidate, other); });
      const bool same = again && kind_of(*again) == kind_of(failure);
      if (same) last = *again;
      return same;
    });
    if (!told_.insert(without_digits(to_string(shortest))).second) return;
    std::cout << last.rule << ": " << last.text << "\n  --run \"" << to_string(shortest) << "\"\n  shrunk from program "
              << number << " of seed " << options_.seed << ": \"" << to_string(found) << "\"\n\n";
  }

  Options options_;
  Shared shared_;
  std::map<std::string, int> kinds_;
  std::set<std::string> told_;  // programs, without numbers
};

std::uint64_t number_of(const std::string& text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) throw std::invalid_argument("no number: " + text);
  return number;
}

Style style_of(const std::string& text) {
  if (text == "quick") return Style::QUICK;
  if (text == "kills") return Style::WITH_KILLS;
  if (text == "threads") return Style::IN_THREADS;
  throw std::invalid_argument("no style: " + text);
}

Options parse_options(const std::vector<std::string>& words) {
  Options options;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto value = [&] {
      if (i + 1 == words.size()) throw std::invalid_argument(kUsage);
      return words[++i];
    };
    if (words[i] == "--seed")
      options.seed = number_of(value());
    else if (words[i] == "--first")
      options.first = number_of(value());
    else if (words[i] == "--style")
      options.style = style_of(value());
    else if (words[i] == "--run")
      options.text = value();
    else if (words[i] == "--keep-going")
      options.keep_going = true;
    else if (!words[i].starts_with("-"))
      options.programs = number_of(words[i]);
    else
      throw std::invalid_argument(kUsage);
  }
  return options;
}

int run_main(const std::vector<std::string>& words) {
  const Options options = parse_options(words);
  const test::Folder folder;  // also for what a process leaves that has crashed
  setenv("TMPDIR", folder.path().c_str(), 1);
  if (options.text.empty()) return Search(options)();
  const auto failure = run(parse(options.text));
  std::cout << (failure ? join(failure->rule, ": ", failure->text) : "all rules held") << '\n';
  return failure ? 1 : 0;
}

}  // namespace
}  // namespace composer::property

int main(int argc, char** argv) {
  try {
    return composer::property::run_main({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
}
