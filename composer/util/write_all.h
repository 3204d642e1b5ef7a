// System calls that every file needs that must not be lost.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace composer::util {

// Writes all bytes at `offset` of the file. Returns false on failure, with the reason in errno.
bool write_all(int file, std::uint64_t offset, const void* data, std::size_t size);

// Waits until changes of names in a folder are on the disk, if the file system supports that. Returns false on failure,
// with the reason in errno.
bool sync_folder(const std::filesystem::path& folder);

// Whether the open file still has this path: another process may have renamed, removed or replaced it.
bool is_at(int file, const std::filesystem::path& path);

// Like is_at(), but `path` may also be a link to the file.
bool leads_to(const std::filesystem::path& path, int file);

}  // namespace composer::util
