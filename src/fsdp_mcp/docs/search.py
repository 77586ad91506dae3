"""search_docs: the sections and API entries that answer a question."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fsdp_mcp.docs.excerpt import excerpt
from fsdp_mcp.docs.question import Question, read_question
from fsdp_mcp.docs.search_index import Hit, Ranking, SearchIndex
from fsdp_mcp.errors import BadArgument
from fsdp_mcp.models import IndexEntry, Kind, Result, Value
from fsdp_mcp.tokens import estimate_tokens

_WEAK = 0.3  # share of the question's weight that the best hit covers
_NEAREST = 2  # hits of a question that hardly matches
_RELEVANT = 0.6  # share of the best hit's score
_FRAME_TOKENS = 60  # first and last line of the rendering
_LAST_LINE_TOKENS = 26
_SMALLEST_EXCERPT = 24
_FIRST_HIT = 420
_OTHER_HITS = 185


class SearchHit(Value):
    """One section or API entry."""

    uri: str = Field(description="What read_doc takes")
    title: str
    kind: Kind
    symbol: str | None = Field(description="Qualified name of the API")
    page: str | None = Field(description="Guide or official page")
    url: str | None = Field(description="Official page with anchor")
    score: float = Field(description="BM25 score with the weights of names and coverage; higher is better")
    text: str = Field(description="Excerpt around the match")


class SearchResult(Result):
    """The best sections for a question, the best first."""

    torch_version: str | None = Field(description="Torch that API entries speak of; null without torch")
    hits: tuple[SearchHit, ...]
    omitted: int = Field(description="Further relevant sections that are not shown")
    suggestion: str | None = Field(description="What to do when nothing fits, or what the index lacks")

    @property
    def negative(self) -> bool:
        """Nothing found is a negative answer."""
        return not self.hits

    def render(self) -> str:
        """Return the hits with their URIs and addresses, then how many are left out and the call that shows more."""
        lines = [_render_hit(number, hit) for number, hit in enumerate(self.hits, start=1)]
        if self.suggestion:
            lines.insert(0, self.suggestion)
        if self.omitted:
            more = min(len(self.hits) + self.omitted, 20)
            lines.append(f"{self.omitted} more: search_docs with limit={more}, or read_doc with a URI above.")
        return "\n\n".join(lines)


def _render_hit(number: int, hit: SearchHit) -> str:
    """Return the title, the URI unless the title says it (read_doc takes an API's name), the address, the excerpt."""
    uri = "" if hit.uri == f"fsdp://api/{hit.title}" else hit.uri
    head = " · ".join(filter(None, [f"**{hit.title}**", uri, hit.url]))
    return f"{number}. {head}\n{hit.text}".rstrip()


def search_docs(
    query: Annotated[
        str, Field(description="A question, keywords, an API name or an error line, in English or Chinese")
    ],
    *,
    limit: Annotated[int, Field(description="Hits at most", ge=1, le=20)] = 5,
    kind: Annotated[Kind | None, Field(description="Only entries of this kind")] = None,
    max_tokens: Annotated[int, Field(description="Size of the reply", ge=100, le=10_000)] = 1500,
    index: SearchIndex,
) -> SearchResult:
    """Search guides and API docs on FSDP and torch.distributed; returns excerpts that hold the answer.

    Use it for how-to questions, error lines and half-known names. For the signature and history of a name
    you know use lookup_api; to read a hit in full pass its uri to read_doc. API entries are those of the
    installed torch; without a hint FSDP2 (fully_shard) comes before FSDP1.
    """
    question = read_question(query, glossary=index.glossary)
    if not question.terms:
        raise BadArgument(f"query: got {query[:60]!r}, which has no word to search for. Give a question or a name.")
    ranking = index.rank(question, kind=kind)
    found = ranking.hits if ranking.coverage >= _WEAK else ranking.hits[:_NEAREST]
    hits = _fit(found[:limit], question=question, index=index, max_tokens=max_tokens)
    return SearchResult(
        torch_version=index.torch_version,
        hits=hits,
        omitted=_omitted(found, shown=len(hits)),
        suggestion=_suggestion(ranking, index=index, kind=kind),
    )


def _omitted(hits: list[Hit], *, shown: int) -> int:
    """Count the hits that are not shown though they score nearly as well as the best."""
    return sum(hit.score >= _RELEVANT * hits[0].score for hit in hits[shown:])


_GET: dict[Kind, str] = {
    "official": "`fsdp-mcp docs fetch` on the command line gets the official pages of a release.",
    "user": "`fsdp-mcp docs add FOLDER --name NAME` on the command line adds documents.",
}


def _suggestion(ranking: Ranking, *, index: SearchIndex, kind: Kind | None) -> str | None:
    if kind and not any(row.kind == kind for row in index.rows):
        return f"There is nothing of kind {kind} here yet. {_GET.get(kind, 'Ask without kind.')}"
    if not ranking.hits:
        where = f" of kind {kind}" if kind else ""
        return f"Nothing{where} matches. Try other words, an API name, or lookup_api. {index.missing}".strip()
    if ranking.coverage < _WEAK:
        nearest = index.rows[ranking.hits[0].number].title
        return f"Little matches; the nearest is {nearest}. Ask in other words or by API name. {index.missing}".strip()
    return index.missing or None


def _fit(hits: list[Hit], *, question: Question, index: SearchIndex, max_tokens: int) -> tuple[SearchHit, ...]:
    """Return as many hits as fit, the first with the most room."""
    rarity = {term: max(index.postings.rarity(term), 0.1) * times for term, times in question.terms.items()}
    room = max_tokens - _FRAME_TOKENS - estimate_tokens(index.missing)
    found: list[SearchHit] = []
    for number, hit in enumerate(hits):
        entry = index.entry(hit.number)
        empty = _shown(entry, score=hit.score, text="")
        overhead = estimate_tokens(_render_hit(number + 1, empty)) + 2
        share = min(room // 2, _FIRST_HIT) if number == 0 else min(room // (len(hits) - number), _OTHER_HITS)
        space = min(max(share, _SMALLEST_EXCERPT + overhead), room) - overhead
        if space < _SMALLEST_EXCERPT:
            break
        shown = _shown(entry, score=hit.score, text=excerpt(entry.text, terms=rarity, max_tokens=space))
        room -= estimate_tokens(_render_hit(number + 1, shown)) + 2
        found.append(shown)
    return tuple(found or _bare(hits, index=index, max_tokens=room + _FRAME_TOKENS - _LAST_LINE_TOKENS))


def _bare(hits: list[Hit], *, index: SearchIndex, max_tokens: int) -> list[SearchHit]:
    """Return the first hit without address and excerpt, its title shortened if it must be, when no more fits."""
    for hit in hits[:1]:
        whole = _shown(index.entry(hit.number), score=hit.score, text="").model_copy(update={"url": None})
        for title in (whole.title, whole.title.rpartition(" › ")[2]):
            shown = whole.model_copy(update={"title": title})
            if estimate_tokens(_render_hit(1, shown)) <= max_tokens:
                return [shown]
    return []


def _shown(entry: IndexEntry, *, score: float, text: str) -> SearchHit:
    return SearchHit(
        uri=entry.uri,
        title=entry.title,
        kind=entry.kind,
        symbol=entry.symbol or None,
        page=entry.page or None,
        url=entry.url or None,
        score=round(score, 3),
        text=text,
    )
