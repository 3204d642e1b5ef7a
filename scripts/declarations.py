"""What the C++ of this tree declares in namespaces with names, as far as scripts need to know it; no script by itself."""
import pathlib
import re

NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|R"\w*\(.*?\)\w*"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\''
                      r"|^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.S | re.M)
WORD = re.compile(r"[A-Za-z_]\w*|\S")


def installed_headers():
    """The paths of the headers that are installed: what the CMakeLists.txt of the modules list after HEADERS."""
    root = pathlib.Path(__file__).resolve().parent.parent
    return sorted(f"{listing.parent.relative_to(root)}/{name}" for listing in (root / "composer").rglob("CMakeLists.txt")
                  for block in re.findall(r"\n  HEADERS\n((?:    .*\n)+)", listing.read_text()) for name in block.split())


def without_template(head):
    """The words behind template<...>."""
    while head[:1] == ["template"]:
        depth = 0
        for end, word in enumerate(head[1:], 1):
            depth += (word == "<") - (word == ">")
            if depth == 0:
                break
        head = head[end + 1:]
    return head


def class_of(head):
    """The name of the class whose body follows these words; None if it is another body, or a specialization."""
    head = without_template(head)
    depth, at = 0, None
    for i, word in enumerate(head):
        depth += (word == "<") - (word == ">")
        if depth == 0 and word in ("struct", "class", "union"):
            at = i
    if at is None or {"=", "enum"}.intersection(head):
        return None
    name, begin = "", at + 1
    while head[begin:begin + 1] in (["["], ["alignas"]):  # attributes: [[...]], alignas(...)
        depth = 0
        for begin in range(begin + (head[begin] == "alignas"), len(head)):
            depth += (head[begin] in "[(") - (head[begin] in "])")
            if depth == 0:
                break
        begin += 1
    for i in range(begin, len(head)):
        if head[i] == "<" or (head[i] == ":" and head[i + 1:i + 2] != [":"] and head[i - 1] != ":"):
            return name if head[i] == ":" else None
        if head[i] == "final":
            break
        if head[i] != "COMPOSER_EXPORT":
            name += head[i]
    return name or None


def function_of(head):
    """The name of the function or the object that these words declare; None if they declare none."""
    if not head or head[0] in ("using", "typedef", "friend", "static_assert", "namespace", "template", "concept"):
        return None
    if "operator" in head:
        at = head.index("operator")
        return "operator" + "".join(head[at + 1:head.index("(", at + 2)])
    depth = 0
    for i, word in enumerate(head):
        depth += (word == "<") - (word == ">")
        if word == "(" and depth == 0:
            return head[i - 1]
    return head[-1] if head[0] == "extern" else None


def declared_in(text):
    """("class", name) of the classes that are defined in namespaces with names, and ("function", name) of what else is
    declared there and not defined."""
    words = WORD.findall(NOT_CODE.sub(" ", text))
    inside, begin, parentheses = [], 0, 0
    for i, word in enumerate(words):
        if word == "{":
            head = words[begin:i]
            namespace = "namespace" in head[:2] and parentheses == 0
            if namespace:
                inside.append("".join(head[head.index("namespace") + 1:]))
            else:
                name = class_of(head) if parentheses == 0 else None
                if name and all(inside):
                    yield "class", "::".join([*inside, name])
                inside.append(None)
        elif word == "}" and inside:
            inside.pop()
        elif word == ";" and parentheses == 0 and all(inside):
            name = function_of([word for word in words[begin:i] if word != "COMPOSER_EXPORT"])
            if name:
                yield "function", "::".join([*inside, name])
        parentheses += (word == "(") - (word == ")")
        if word in "{};" and parentheses == 0:
            begin = i + 1
