#include "composer/util/pattern.h"

#include <regex>

#include "composer/core/error.h"

namespace composer::util {

struct Pattern::Compiled {
  std::regex regex;
  std::string option;

  // Rejects long texts: libstdc++ recurses for each letter that may be matched in several ways.
  const std::regex& fit_for(std::string_view text) const {
    constexpr std::size_t kLongest = 4'096;
    if (text.size() > kLongest)
      throw ConfigError(option, ": a text of ", text.size(), " letters cannot be searched, at most ", kLongest);
    return regex;
  }
};

Pattern::Pattern(std::string_view option, const std::string& text, Case letters) try
    : compiled_(std::make_shared<Compiled>(
          Compiled{.regex = std::regex(text, letters == Case::EXACT ? std::regex::ECMAScript
                                                                    : std::regex::ECMAScript | std::regex::icase),
                   .option = std::string(option)})) {
} catch (const std::regex_error& error) {
  throw ConfigError(option, ": \"", text, "\" is not a regular expression: ", error.what());
}

bool Pattern::is_in(std::string_view text) const {
  return std::regex_search(text.begin(), text.end(), compiled_->fit_for(text));
}

bool Pattern::begins(std::string_view text) const {
  return std::regex_search(text.begin(), text.end(), compiled_->fit_for(text), std::regex_constants::match_continuous);
}

std::optional<std::vector<std::string>> Pattern::groups_in(const std::string& text) const {
  std::smatch match;
  if (!std::regex_match(text, match, compiled_->fit_for(text))) return std::nullopt;
  return std::vector<std::string>(std::next(match.begin()), match.end());
}

std::string Pattern::replace(const std::string& text, const std::string& to) const {
  return std::regex_replace(text, compiled_->fit_for(text), to);
}

}  // namespace composer::util
