// What every file that must not be lost needs of the system.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace composer::util {

// All of it, from byte `offset` of the file. False: errno says why not.
bool write_all(int file, std::uint64_t offset, const void* data, std::size_t size);

// Waits until the names in a folder are on the disk, where its file system can say so. False: errno says why not.
bool sync_folder(const std::filesystem::path& folder);

// Whether an open file still has that path: another process may have renamed, removed or replaced it.
bool is_at(int file, const std::filesystem::path& path);

// The same, where the path may be that of a link.
bool leads_to(const std::filesystem::path& path, int file);

}  // namespace composer::util
