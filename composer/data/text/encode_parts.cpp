#include "composer/data/text/encode_parts.h"

#include <algorithm>

#include "composer/util/parallel.h"

namespace composer::data::detail {
namespace {

constexpr std::size_t kPartBytes = 1 << 18;

}  // namespace

std::vector<std::vector<std::int64_t>> encode_parts(const Tokenizer& tokenizer, std::string_view text,
                                                    std::uint64_t from) {
  const char* const begin = text.data();
  std::vector<std::string_view> parts;
  while (text.size() > kPartBytes) {
    std::size_t end = 0;
    for (std::size_t most = kPartBytes; end == 0; most *= 2) {
      end = tokenizer.last_border(text.substr(0, most));
      if (most >= text.size()) break;
    }
    if (end == 0) break;
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  if (!text.empty()) parts.push_back(text);
  std::vector<std::vector<std::int64_t>> tokens(parts.size());
  parallel_for(0, static_cast<std::int64_t>(parts.size()), 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      std::vector<std::int64_t>& to = tokens[static_cast<std::size_t>(i)];
      const std::string_view part = parts[static_cast<std::size_t>(i)];
      to.reserve(part.size() / 3);
      try {
        tokenizer.append(part, to);
      } catch (const TextError& error) {
        throw error.in_text(from + static_cast<std::uint64_t>(part.data() - begin));
      }
    }
  });
  return tokens;
}

}  // namespace composer::data::detail
