"""Three shops that send their orders as JSON, CSV and Parquet; a file more of each with every call."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

LANDING = Path(__file__).parent / "landing"


def main() -> None:
    for shop in ("web", "tills", "partners"):
        (LANDING / shop).mkdir(parents=True, exist_ok=True)
    number = len(list((LANDING / "web").iterdir()))
    numbers = range(number * 4, number * 4 + 4)
    web = [f'{{"id": "w{i}", "amount": {10 * i}, "page": "/pay"}}\n' for i in numbers]
    tills = ["id,amount\n", *(f"t{i},{5 * i}\n" for i in numbers)]
    partners = {
        "order": [f"p{i}" for i in numbers],
        "cents": [100 * i for i in numbers],
    }
    (LANDING / "web" / f"{number}.json").write_text("".join(web))
    (LANDING / "tills" / f"{number}.csv").write_text("".join(tills))
    pq.write_table(pa.table(partners), LANDING / "partners" / f"{number}.parquet")


if __name__ == "__main__":
    main()
